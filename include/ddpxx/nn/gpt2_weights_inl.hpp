// ddpxx/nn/gpt2_weights_inl.hpp — the definitions of gpt2_weights.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/named_tensors.hpp>
#include <ddpxx/nn/gpt2_weights.hpp>
#include <ddpxx/nn/mingpt_state.hpp>

namespace ddpxx {

namespace detail {

/// True for the matrices that GPT-2 stores as [in, out]: its linear layers are of a class Conv1D.
inline bool is_transposed(std::string_view name) {
  constexpr std::array<std::string_view, 4> kLinear{".attn.c_attn.weight", ".attn.c_proj.weight", ".mlp.c_fc.weight",
                                                    ".mlp.c_proj.weight"};
  return std::any_of(kLinear.begin(), kLinear.end(), [name](auto end) { return name.ends_with(end); });
}

/// True for the names of biases, also for that of qkv in minGPT-ddp, `in_proj_bias`.
inline bool is_bias(std::string_view name) { return name.ends_with(".bias") || name.ends_with("_bias"); }

/// True for attention masks, which old files contain.
inline bool is_mask(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

}  // namespace detail

DDPXX_INLINE NamedTensors gpt2_tensors(const NamedTensors& file) {
  const std::string prefix = "transformer.";
  const auto is_fused = [](const auto& item) { return item.first.ends_with(".attn.c_attn.weight"); };
  const auto fused = std::find_if(file.begin(), file.end(), is_fused);
  if (fused == file.end()) return file;
  const bool transposed = fused->second.dim() == 2 && fused->second.size(0) < fused->second.size(1);
  const bool bare = fused->first.starts_with("h.");
  NamedTensors tensors;
  for (const auto& [name, tensor] : file) {
    if (detail::is_mask(name)) continue;
    const bool turn = transposed && detail::is_transposed(name) && tensor.dim() == 2;
    tensors.emplace(bare && name != "lm_head.weight" ? prefix + name : name, turn ? tensor.t() : tensor);
  }
  if (const auto tokens = tensors.find("transformer.wte.weight"); tokens != tensors.end())
    tensors.emplace("lm_head.weight", tokens->second);
  return tensors;
}

DDPXX_INLINE bool has_biases(const NamedTensors& file) {
  return std::ranges::any_of(file, [](const auto& item) {
    return detail::is_bias(item.first) && !detail::is_mask(item.first) && item.second.any().template item<bool>();
  });
}

DDPXX_INLINE NamedTensors gpt2_from_huggingface(const NamedTensors& file, const NamedTensors& parameters) {
  auto tensors = gpt2_tensors(file);
  remove_masks(tensors);
  const auto is_bias = [](const auto& item) { return detail::is_bias(item.first); };
  std::string differences;
  // nanoGPT's default is a model without biases, whose numbers are those of zeros.
  if (std::ranges::none_of(tensors, is_bias)) {
    for (const auto& item : parameters)
      if (is_bias(item)) tensors.emplace(item.first, at::zeros_like(item.second));
  } else if (std::ranges::none_of(parameters, is_bias)) {
    if (has_biases(tensors)) differences += "\n  biases: only in the file, and this model has none: set bias=true";
    std::erase_if(tensors, is_bias);
  }
  for (const auto& [embedding, head] : detail::kHeads) {
    if (!parameters.contains(embedding) || parameters.contains(head)) continue;
    const auto tokens = tensors.find(embedding), own = tensors.find(head);
    if (tokens == tensors.end() || own == tensors.end()) continue;
    if (tokens->second.scalar_type() != own->second.scalar_type() || !at::equal(tokens->second, own->second))
      differences += std::string{"\n  "} + head + ": differs from " + embedding +
                     " in the file, and the head of this model is tied to it: set tied_head=false";
    tensors.erase(own);
  }
  differences += shape_differences(shapes_of(tensors), shapes_of(parameters), "the file");
  if (!differences.empty()) throw Error{Errc::storage, "these are not the weights of this GPT:" + differences};
  return tensors;
}

DDPXX_INLINE NamedTensors gpt2_to_huggingface(const NamedTensors& parameters) {
  NamedTensors tensors;
  const bool has_biases = std::ranges::any_of(parameters, [](const auto& item) { return detail::is_bias(item.first); });
  for (const auto& [name, parameter] : parameters) {
    tensors.emplace(name, detail::is_transposed(name) ? parameter.t() : parameter);
    constexpr std::string_view kWeight = "weight", kNorm = ".ln_";
    if (!has_biases && (detail::is_transposed(name) || name.find(kNorm) != name.npos))
      tensors.emplace(name.substr(0, name.size() - kWeight.size()) + "bias",
                      at::zeros({parameter.size(0)}, parameter.options()));
  }
  return tensors;
}

DDPXX_INLINE void add_tied_head(NamedTensors& model) {
  for (const auto& [embedding, head] : detail::kHeads)
    if (const auto tokens = model.find(embedding); tokens != model.end()) model.emplace(head, tokens->second);
}

DDPXX_INLINE NamedTensors parameters_by_name(const torch::nn::Module& module) {
  NamedTensors tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace(item.key(), item.value().detach());
  return tensors;
}

DDPXX_INLINE void load_gpt2(torch::nn::Module& gpt, const NamedTensors& file) {
  const c10::NoGradGuard no_grad;
  auto parameters = parameters_by_name(gpt);
  const auto tensors = gpt2_from_huggingface(file, parameters);
  for (auto& [name, parameter] : parameters) parameter.copy_(tensors.at(name));
}

}  // namespace ddpxx
