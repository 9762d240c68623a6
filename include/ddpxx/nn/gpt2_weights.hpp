// ddpxx/nn/gpt2_weights.hpp — loads and saves GPT-2's weights in the names and layouts of Hugging Face.
#pragma once

#include <array>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <ddpxx/flat/named_tensors.hpp>

namespace ddpxx {

/// Loads the tensors of a file into a GPT of the same layout and sizes: GPT-2's own (model.safetensors,
/// pytorch_model.bin), nanoGPT's, minGPT's, or those of a GPT of this library.
/// Errors  those of gpt2_from_huggingface; the model is unchanged then.
void load_gpt2(torch::nn::Module& gpt, const NamedTensors& file);

/// The tensors of such a file, under the names of `parameters`, those of a GPT. Matrices of linear layers may be
/// transposed in the file, as GPT-2's are: the shape of c_attn.weight shows it. Names may lack `transformer.`. In a
/// file without lm_head.weight, wte.weight is used for it. A GPT with a tied head needs none. In a file without any
/// biases, these are zeros for a GPT that has biases; biases that are all zeros are left out for a GPT that has none.
/// Errors  `storage`, listing every name that is missing, superfluous or of another shape; also for a file with biases
///         other than zeros and a GPT without them.
NamedTensors gpt2_from_huggingface(const NamedTensors& file, const NamedTensors& parameters);

/// The tensors of a file of GPT-2 in the names and shapes of a GPT of layout gpt2. Other files are returned unchanged.
NamedTensors gpt2_tensors(const NamedTensors& file);

/// The parameters of a GPT of layout gpt2 in the layout of Hugging Face. Hugging Face reads lm_head.weight only if the
/// configuration says tie_word_embeddings=false, which is needed for a GPT that trains its head apart from wte.weight.
/// Without lm_head.weight, that of a tied head, Hugging Face's default is right. Hugging Face's GPT-2 has biases: those
/// of a GPT without biases are zeros, which give equal numbers.
NamedTensors gpt2_to_huggingface(const NamedTensors& parameters);

/// Whether the tensors of a file of GPT-2 have a bias other than zeros.
bool has_biases(const NamedTensors& file);

/// Adds the weight of a tied head to the parameters of a GPT, under the head's name: the state of nanoGPT and
/// minGPT-ddp has both names. Other models, and a GPT with a head of its own, are unchanged.
void add_tied_head(NamedTensors& model);

/// A module's parameters by name: detached views of the module's memory.
NamedTensors parameters_by_name(const torch::nn::Module& module);

namespace detail {

/// The names of the token embedding and of the head in each layout of a GPT.
inline constexpr std::array<std::pair<const char*, const char*>, 2> kHeads{
    {{"transformer.wte.weight", "lm_head.weight"}, {"emb_stem.tok_emb.weight", "head.weight"}}};

}  // namespace detail

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/nn/gpt2_weights_inl.hpp>
#endif
