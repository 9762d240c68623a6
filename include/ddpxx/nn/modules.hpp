// ddpxx/nn/modules.hpp — linear layer, embedding and layer norm of a GPT, computed as in PyTorch.
// torch::nn's own forward calls other ATen operations for some shapes (a product with weight.t() in place of `linear`),
// which cost more and round differently. These modules have parameters of the usual names and call the operation that
// Python calls.
#pragma once

#include <cstdint>

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

namespace ddpxx {

enum class Bias { none, zero };

/// y = x W^T + b, initialised N(0, std) with zero bias.
class Linear : public torch::nn::Module {
 public:
  Linear(std::int64_t in, std::int64_t out, double std, Bias bias = Bias::zero) {
    weight_ = register_parameter("weight", at::empty({out, in}).normal_(0.0, std));
    if (bias == Bias::zero) bias_ = register_parameter("bias", at::zeros({out}));
  }
  at::Tensor forward(const at::Tensor& x) const { return at::linear(x, weight_, bias_); }
  const at::Tensor& weight() const noexcept { return weight_; }
  const at::Tensor& bias() const noexcept { return bias_; }

 private:
  at::Tensor weight_;
  at::Tensor bias_;
};

/// Looks up rows of a table, which is initialised N(0, std).
class Embedding : public torch::nn::Module {
 public:
  Embedding(std::int64_t rows, std::int64_t width, double std) {
    weight_ = register_parameter("weight", at::empty({rows, width}).normal_(0.0, std));
  }
  at::Tensor forward(const at::Tensor& ids) const { return at::embedding(weight_, ids); }
  const at::Tensor& weight() const noexcept { return weight_; }

 private:
  at::Tensor weight_;
};

/// Layer normalisation over the last dimension, with a scale and, unless `bias` is none, a shift. It is computed in the
/// type of the scale.
class LayerNorm : public torch::nn::Module {
 public:
  explicit LayerNorm(std::int64_t width, Bias bias = Bias::zero) : width_{width} {
    weight_ = register_parameter("weight", at::ones({width}));
    if (bias == Bias::zero) bias_ = register_parameter("bias", at::zeros({width}));
  }
  at::Tensor forward(const at::Tensor& x) const {
    // Under autocast the operation casts by itself; otherwise GPUs need one type for input and weight.
    if (x.scalar_type() == weight_.scalar_type() || at::autocast::is_autocast_enabled(x.device().type()))
      return at::layer_norm(x, {width_}, weight_, bias_);
    return at::layer_norm(x.to(weight_.scalar_type()), {width_}, weight_, bias_).to(x.scalar_type());
  }
  const at::Tensor& weight() const noexcept { return weight_; }
  const at::Tensor& bias() const noexcept { return bias_; }

 private:
  std::int64_t width_;
  at::Tensor weight_;
  at::Tensor bias_;
};

}  // namespace ddpxx
