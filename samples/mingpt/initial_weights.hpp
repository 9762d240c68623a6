// initial_weights.hpp — loads only weights, from files that other programs write; the training starts with them at step
// 0.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include <ddpxx/core/error.hpp>
#include <ddpxx/interop/model_file.hpp>
#include <ddpxx/nn/gpt2_weights.hpp>
#include <ddpxx/snapshot/load_model.hpp>
#include <ddpxx/snapshot/snapshot_choice.hpp>
#include <ddpxx/storage/open_storage.hpp>

/// Loads what `init_from` names into a GPT: a file (.safetensors, .pt, .pth, .ckpt, .bin), a folder of GPT-2 as Hugging
/// Face publishes it, or a snapshot of a run (PLACE, PLACE:STEP, PLACE:best).
/// Errors  `storage` for what is not there, is damaged, or holds the weights of another model.
inline void load_initial_weights(torch::nn::Module& gpt, const std::string& init_from) {
  std::error_code failure;
  const auto path = ddpxx::find_model_file(init_from).value_or(init_from);
  if (std::filesystem::is_regular_file(path, failure)) {
    try {
      return ddpxx::load_gpt2(gpt, ddpxx::read_model_file(path));
    } catch (const ddpxx::Error& error) {
      throw ddpxx::Error{error.code(), "init_from=" + init_from + ": " + error.what()};
    }
  }
  const auto choice = ddpxx::parse_snapshot_choice(init_from);
  if (choice.place.find("://") == std::string::npos && !std::filesystem::is_directory(choice.place, failure))
    throw ddpxx::Error{ddpxx::Errc::storage, "init_from=" + init_from +
                                                 ": there is no such file or folder; weights are read from a file, a "
                                                 "folder with model.safetensors, or a snapshot, and not downloaded"};
  const auto storage = ddpxx::open_storage(choice.place);
  ddpxx::load_model(gpt, *storage, ddpxx::choose_snapshot(*storage, choice));
}
