// ddpxx/flat/model_tensors.hpp — the parameters and buffers of a model, by name.
#pragma once

#include <map>
#include <string>

#include <torch/nn/module.h>

#include <ddpxx/flat/named_tensors.hpp>

namespace ddpxx {

/// A model's parameters and buffers, each once. A tensor that the model registers under several names stands under the
/// first of them, under which a trainer saves it.
struct ModelTensors {
  NamedTensors tensors;                              ///< The tensors themselves, not copies.
  std::map<std::string, std::string> further_names;  ///< The further names of tensors, each with the first one.

  explicit ModelTensors(const torch::nn::Module& model) {
    std::map<const void*, std::string> first_names;
    const auto add = [&](const auto& items) {
      for (const auto& item : items) {
        const auto [first, is_new] = first_names.emplace(item.value().unsafeGetTensorImpl(), item.key());
        if (is_new)
          tensors.emplace(item.key(), item.value());
        else
          further_names.emplace(item.key(), first->second);
      }
    };
    add(model.named_parameters());
    add(model.named_buffers());
  }
};

}  // namespace ddpxx
