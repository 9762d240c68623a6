// huggingface_folder.hpp — a GPT-2 in the folder of Hugging Face's transformers, config.json and model.safetensors, as
// a snapshot, and a snapshot as such a folder.
#pragma once

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

#include <ATen/core/Tensor.h>

#include <ddpxx/config/text.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/interop/model_file.hpp>
#include <ddpxx/nn/from_pretrained.hpp>
#include <ddpxx/nn/gpt2_description.hpp>
#include <ddpxx/nn/gpt2_weights.hpp>
#include <ddpxx/snapshot/safetensors.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/train/recorded_gpt.hpp>

#include "gpt_settings.hpp"
#include "output_folder.hpp"

namespace huggingface_folder {

inline constexpr std::string_view kModel = "model.";
inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kWeightsFile = "model.safetensors";

inline bool is_one(const std::filesystem::path& place) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(place / kConfigFile, ignored);
}

/// The weights, and the settings with which mingpt resumes from the snapshot and generates text with it.
/// Errors  `storage` for a folder whose model GPT does not compute, and for weights that do not fit it.
inline ddpxx::Snapshot read(const std::filesystem::path& folder) {
  const auto config_json = ddpxx::read_file(folder / kConfigFile, ddpxx::Errc::storage);
  const auto gpt = ddpxx::from_pretrained(config_json, ddpxx::read_model_file(folder));
  ddpxx::Snapshot snapshot;
  for (const auto& [name, tensor] : ddpxx::parameters_by_name(*gpt))
    snapshot.tensors.emplace(std::string{kModel} + name, tensor);
  auto network = ddpxx::read_gpt2_config(config_json);
  // Python may have trained the biases of a model that had none.
  network.config.bias = gpt->named_parameters().contains("transformer.ln_f.bias");
  const auto origin = (folder / kConfigFile).string();
  snapshot.run.settings = {{.path = "model.model_type", .value = ddpxx::yaml_quoted("gpt2"), .origin = origin}};
  std::ranges::move(gpt_settings::of_network(network, origin), std::back_inserter(snapshot.run.settings));
  auto tokens = gpt_settings::of_tokens(network.vocab_size, origin);
  std::error_code ignored;
  for (const char* name : {"tokenizer.json", "vocab.json"})
    if (std::filesystem::is_regular_file(folder / name, ignored)) {
      tokens.push_back({.path = "data.tokenizer", .value = ddpxx::yaml_quoted(folder.string()), .origin = origin});
      break;
    }
  std::ranges::move(tokens, std::back_inserter(snapshot.run.settings));
  return snapshot;
}

/// Writes config.json and model.safetensors, which transformers loads by GPT2LMHeadModel.from_pretrained.
/// Errors  `config` if the folder has one of the two files; `storage` if the snapshot is of another model than a GPT of
///         layout gpt2, or does not record its settings.
inline void write(const std::filesystem::path& folder, const ddpxx::Snapshot& snapshot) {
  const auto refuse = [](const std::string& why) {
    throw ddpxx::Error{ddpxx::Errc::storage, "layout=huggingface writes a GPT of layout gpt2, and " + why};
  };
  const auto recorded = ddpxx::recorded_gpt(snapshot.run.settings);
  if (!recorded) refuse("this snapshot does not record its number of heads: its run was not one of a GPT");
  const auto& config = *recorded;
  ddpxx::NamedTensors model;
  for (const auto& [name, tensor] : snapshot.tensors)
    if (name.starts_with(kModel)) model.emplace(name.substr(kModel.size()), tensor);
  const auto tokens = model.find("transformer.wte.weight"), positions = model.find("transformer.wpe.weight");
  if (config.layout != ddpxx::GPTLayout::gpt2 || tokens == model.end() || positions == model.end())
    refuse("this snapshot is of another model");
  for (const char* name : {kConfigFile, kWeightsFile}) {
    std::error_code unknown;
    if (std::filesystem::exists(std::filesystem::symlink_status(folder / name, unknown)))
      throw ddpxx::Error{ddpxx::Errc::config, "to=" + folder.string() + " has a " + name +
                                                  " already: name another folder, or remove the file"};
  }
  make_output_folder(folder);
  ddpxx::write_safetensors(folder / kWeightsFile, ddpxx::gpt2_to_huggingface(model), {{"format", "pt"}});
  ddpxx::write_file_atomic(folder / kConfigFile, ddpxx::gpt2_config_json({.config = config,
                                                                          .vocab_size = tokens->second.size(0),
                                                                          .block_size = positions->second.size(0)}));
}

}  // namespace huggingface_folder
