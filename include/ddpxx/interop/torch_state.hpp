// ddpxx/interop/torch_state.hpp — the Python state_dict() of LibTorch's models and optimizers.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <ddpxx/interop/pickle_value.hpp>
#include <ddpxx/snapshot/named_tensors.hpp>

namespace ddpxx {

/// Returns the model's parameters and buffers, without copying them.
NamedTensors state_dict(const torch::nn::Module& model);

/// Returns the optimizer's state without copying it. Parameters are numbered in the order of its groups, as in Python.
/// Errors  `config` for an optimizer other than AdamW, Adam and SGD.
PickleValue state_dict(const torch::optim::Optimizer& optimizer);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/interop/torch_state_inl.hpp>
#endif
