// ddpxx/nn/from_pretrained.hpp — makes a GPT from the files of a GPT-2 that Hugging Face's transformers has saved.
#pragma once

#include <memory>
#include <string_view>

#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/nn/gpt2_description.hpp>
#include <ddpxx/nn/gpt2_weights.hpp>

namespace ddpxx {

/// A GPT with the sizes of a config.json and the weights of the files beside it:
///
///     const std::filesystem::path folder{"gpt2"};
///     const auto gpt = from_pretrained(read_file(folder / "config.json", Errc::storage), read_model_file(folder));
///
/// Errors  `storage` for a model that GPT does not compute, and for weights that do not fit it.
inline std::shared_ptr<GPT> from_pretrained(std::string_view config_json, const NamedTensors& weights) {
  auto [config, vocab_size, block_size] = read_gpt2_config(config_json);
  config.bias = config.bias || has_biases(weights);  // Python may have trained the biases of a model that had none
  auto gpt = std::make_shared<GPT>(config, vocab_size, block_size);
  load_gpt2(*gpt, weights);
  return gpt;
}

}  // namespace ddpxx
