// ddpxx/interop/torch_state.hpp — the Python state_dict() of LibTorch's models and optimizers, and tensors of one read
// into a model.
#pragma once

#include <string>
#include <vector>

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <ddpxx/flat/named_tensors.hpp>
#include <ddpxx/interop/pickle_value.hpp>

namespace ddpxx {

/// Returns the model's parameters and buffers, without copying them.
NamedTensors state_dict(const torch::nn::Module& model);

/// Whether load_state_dict() refuses tensors whose names are not those of the model, as with strict=True in Python.
enum class Strict { yes, no };

/// The names that a model and the tensors that were read into it do not share.
struct UnmatchedNames {
  std::vector<std::string> missing;     ///< Those of the model alone, which has kept these tensors.
  std::vector<std::string> unexpected;  ///< Those of the tensors alone.
};

/// Copies tensors into the parameters and buffers of a model that have the same names, as load_state_dict() does in
/// Python; their types and devices may be others. A tensor that the model registers under several names needs one of
/// them.
///
///     load_state_dict(*net, read_model_file("resnet18.pt"));
///
/// Ranks   Local. Every rank reads the same tensors, before a trainer is made of the model.
/// Errors  `storage`, before anything is copied, with a line for each tensor of another shape, and for each name that is
///         missing or unexpected where `strict` is `yes`.
UnmatchedNames load_state_dict(torch::nn::Module& model, const NamedTensors& tensors, Strict strict = Strict::yes);

/// Returns the optimizer's state without copying it. Parameters are numbered in the order of its groups, as in Python.
/// Errors  `config` for an optimizer other than AdamW, Adam and SGD.
PickleValue state_dict(const torch::optim::Optimizer& optimizer);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/interop/torch_state_inl.hpp>
#endif
