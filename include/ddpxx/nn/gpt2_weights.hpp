// ddpxx/nn/gpt2_weights.hpp — loads and saves GPT-2's weights in the names and layouts of Hugging Face.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/nn/mingpt_state.hpp>

namespace ddpxx {

using NamedTensors = std::map<std::string, at::Tensor>;

/// Loads the tensors of a file into a GPT of the same layout and sizes: GPT-2's own (model.safetensors,
/// pytorch_model.bin), nanoGPT's, minGPT's, or those of a GPT of this library.
/// Errors  those of gpt2_from_huggingface; the model is unchanged then.
void load_gpt2(torch::nn::Module& gpt, const NamedTensors& file);

/// The tensors of such a file, under the names of `parameters`, those of a GPT. Matrices of linear layers may be
/// transposed in the file, as GPT-2's are: the shape of c_attn.weight shows it. Names may lack `transformer.`. In a
/// file without lm_head.weight, wte.weight is used for it. A GPT with a tied head needs none.
/// Errors  `storage`, listing every name that is missing, superfluous or of another shape.
NamedTensors gpt2_from_huggingface(const NamedTensors& file, const NamedTensors& parameters);

/// The tensors of a file of GPT-2 in the names and shapes of a GPT of layout gpt2. Other files are returned unchanged.
NamedTensors gpt2_tensors(const NamedTensors& file);

/// The parameters of a GPT of layout gpt2 in the layout of Hugging Face. Hugging Face reads lm_head.weight only if the
/// configuration says tie_word_embeddings=false, which is needed for a GPT that trains its head apart from wte.weight.
/// Without lm_head.weight, that of a tied head, Hugging Face's default is right.
NamedTensors gpt2_to_huggingface(const NamedTensors& parameters);

/// Adds the weight of a tied head to the parameters of a GPT, under the head's name: the state of nanoGPT and
/// minGPT-ddp has both names. Other models, and a GPT with a head of its own, are unchanged.
void add_tied_head(NamedTensors& model);

/// A module's parameters by name: detached views of the module's memory.
NamedTensors parameters_by_name(const torch::nn::Module& module);

namespace detail {

/// True for the matrices that GPT-2 stores as [in, out]: its linear layers are of a class Conv1D.
inline bool is_transposed(std::string_view name) {
  constexpr std::array<std::string_view, 4> kLinear{".attn.c_attn.weight", ".attn.c_proj.weight", ".mlp.c_fc.weight",
                                                    ".mlp.c_proj.weight"};
  return std::any_of(kLinear.begin(), kLinear.end(), [name](auto end) { return name.ends_with(end); });
}

/// The names of the token embedding and of the head in each layout of a GPT.
inline constexpr std::array<std::pair<const char*, const char*>, 2> kHeads{
    {{"transformer.wte.weight", "lm_head.weight"}, {"emb_stem.tok_emb.weight", "head.weight"}}};

/// True for attention masks, which old files contain.
inline bool is_mask(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

}  // namespace detail

inline NamedTensors gpt2_tensors(const NamedTensors& file) {
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

inline NamedTensors gpt2_from_huggingface(const NamedTensors& file, const NamedTensors& parameters) {
  auto tensors = gpt2_tensors(file);
  remove_masks(tensors);
  std::string differences;
  for (const auto& [embedding, head] : detail::kHeads) {
    if (!parameters.contains(embedding) || parameters.contains(head)) continue;
    const auto tokens = tensors.find(embedding), own = tensors.find(head);
    if (tokens == tensors.end() || own == tensors.end()) continue;
    if (!at::equal(tokens->second, own->second))
      differences += std::string{"\n  "} + head + ": differs from " + embedding +
                     " in the file, and the head of this model is tied to it: set tied_head=false";
    tensors.erase(own);
  }
  for (const auto& [name, parameter] : parameters) {
    const auto found = tensors.find(name);
    if (found == tensors.end())
      differences += "\n  " + name + ": missing in the file";
    else if (found->second.sizes() != parameter.sizes())
      differences += "\n  " + name + ": " + c10::str(found->second.sizes()) + " in the file, " +
                     c10::str(parameter.sizes()) + " in the model";
  }
  for (const auto& [name, tensor] : tensors)
    if (!parameters.contains(name)) differences += "\n  " + name + ": only in the file";
  if (!differences.empty()) throw Error{Errc::storage, "these are not the weights of this GPT:" + differences};
  return tensors;
}

inline NamedTensors gpt2_to_huggingface(const NamedTensors& parameters) {
  NamedTensors tensors;
  for (const auto& [name, parameter] : parameters)
    tensors.emplace(name, detail::is_transposed(name) ? parameter.t() : parameter);
  return tensors;
}

inline void add_tied_head(NamedTensors& model) {
  for (const auto& [embedding, head] : detail::kHeads)
    if (const auto tokens = model.find(embedding); tokens != model.end()) model.emplace(head, tokens->second);
}

inline NamedTensors parameters_by_name(const torch::nn::Module& module) {
  NamedTensors tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace(item.key(), item.value().detach());
  return tensors;
}

inline void load_gpt2(torch::nn::Module& gpt, const NamedTensors& file) {
  const c10::NoGradGuard no_grad;
  auto parameters = parameters_by_name(gpt);
  const auto tensors = gpt2_from_huggingface(file, parameters);
  for (auto& [name, parameter] : parameters) parameter.copy_(tensors.at(name));
}

}  // namespace ddpxx
