// ddpxx/train/unregistered_leaf.hpp — finds a tensor that a model computes with and has not registered as a parameter.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <ddpxx/core/inline.hpp>

namespace ddpxx::detail {

/// The first tensor that a loss depends on which requires a gradient, was not computed, and is no parameter of the
/// model; undefined if there is none. Where layers are computed again in backward, those inside of them are not seen.
at::Tensor unregistered_leaf(const at::Tensor& loss, const torch::nn::Module& model);

}  // namespace ddpxx::detail

#ifndef DDPXX_CORE
#include <ddpxx/train/unregistered_leaf_inl.hpp>
#endif
