// ddpxx/nn/mingpt_state.hpp — the parameters that decay in minGPT, and the masks in minGPT-ddp's state.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

#include <ddpxx/flat/named_tensors.hpp>

namespace ddpxx {

/// minGPT's rule: the matrices of linear layers decay; biases, norms and embeddings do not.
inline bool decays_in_mingpt(std::string_view name, const at::Tensor& parameter) {
  return parameter.dim() == 2 && !name.ends_with("wte.weight") && !name.ends_with("wpe.weight") &&
         !name.ends_with("tok_emb.weight");
}

/// Adds `blocks.I.attn.mask`, float32 [1, 1, T, T], if `model` is a GPT of layout mingpt_ddp for T tokens. minGPT-ddp
/// has them as buffers, and refuses a state without them. All blocks share one tensor.
void add_masks(NamedTensors& model);

/// Removes `blocks.I.attn.mask`, which a GPT of this library does not have.
void remove_masks(NamedTensors& model);

namespace detail {

/// The names that the masks of a GPT have or would have; none for another model.
inline std::vector<std::string> mask_names(const NamedTensors& model) {
  constexpr std::string_view kProjection = ".attn.attn.in_proj_weight";
  std::vector<std::string> names;
  for (const auto& [name, tensor] : model)
    if (name.ends_with(kProjection)) names.push_back(name.substr(0, name.size() - kProjection.size()) + ".attn.mask");
  return names;
}

}  // namespace detail

inline void add_masks(NamedTensors& model) {
  const auto positions = model.find("emb_stem.pos_emb");
  if (positions == model.end() || positions->second.dim() != 3) return;
  const auto length = positions->second.size(1);
  const auto mask = at::ones({length, length}).tril_().view({1, 1, length, length});
  for (const auto& name : detail::mask_names(model)) model.emplace(name, mask);
}

inline void remove_masks(NamedTensors& model) {
  for (const auto& name : detail::mask_names(model)) model.erase(name);
}

}  // namespace ddpxx
