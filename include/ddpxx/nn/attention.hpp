// ddpxx/nn/attention.hpp — causal self-attention in the two layouts of a GPT.
// Shape suffixes: B batch, T tokens, C width, H heads, D width of a head.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <ddpxx/nn/biased_linear.hpp>
#include <ddpxx/nn/gpt_config.hpp>
#include <ddpxx/nn/key_value_cache.hpp>
#include <ddpxx/nn/modules.hpp>

namespace ddpxx {

namespace detail {

/// The biases of the linear layers in a GPT's blocks, and of its layer norms.
inline Bias biases_of(const GPTConfig& config) { return config.bias ? Bias::zero : Bias::none; }

}  // namespace detail

/// Fused causal attention. With a cache, the tokens are new ones behind those in the cache: they attend to these as
/// well, and are added to them.
///
/// Shapes  Queries, keys and values [B, T, C]; result [B, T, C].
inline at::Tensor causal_attention(const at::Tensor& queries_BTC, const at::Tensor& keys_BTC,
                                   const at::Tensor& values_BTC, std::int64_t heads, double dropout,
                                   AttentionCache* cache = nullptr) {
  const auto B = queries_BTC.size(0), T = queries_BTC.size(1), C = queries_BTC.size(2);
  const auto before = cache == nullptr ? 0 : cache->num_tokens();
  const auto by_head = [&](const at::Tensor& x_BTC) { return x_BTC.view({B, T, heads, C / heads}).transpose(1, 2); };
  auto keys_BHTD = by_head(keys_BTC), values_BHTD = by_head(values_BTC);
  if (cache != nullptr) std::tie(keys_BHTD, values_BHTD) = cache->append(keys_BHTD, values_BHTD);
  // A single token sees all others, and the mask of is_causal begins at the first key.
  std::optional<at::Tensor> mask_TS;
  if (before > 0 && T > 1) mask_TS = at::ones({T, before + T}, queries_BTC.options().dtype(at::kBool)).tril(before);
  const auto y_BHTD = at::scaled_dot_product_attention(by_head(queries_BTC), keys_BHTD, values_BHTD, mask_TS, dropout,
                                                       /*is_causal=*/before == 0);
  return y_BHTD.transpose(1, 2).contiguous().view({B, T, C});
}

/// The projections of torch.nn.MultiheadAttention, with its parameter names and its initialisation of `in_proj`.
class MultiheadProjections : public torch::nn::Module {
 public:
  MultiheadProjections(std::int64_t width, Bias bias) {
    const double bound = std::sqrt(6.0 / static_cast<double>(width + 3 * width));  // Xavier, uniform
    weight_ = register_parameter("in_proj_weight", at::empty({3 * width, width}).uniform_(-bound, bound));
    if (bias == Bias::zero) bias_ = register_parameter("in_proj_bias", at::zeros({3 * width}));
    out_ = register_module("out_proj", std::make_shared<Linear>(width, width, 0.02, bias));
  }
  at::Tensor in(const at::Tensor& x_BTC) const { return at::linear(x_BTC, weight_, bias_); }
  at::Tensor out(const at::Tensor& y_BTC) const { return out_->forward(y_BTC); }

 private:
  at::Tensor weight_;
  at::Tensor bias_;
  std::shared_ptr<Linear> out_;
};

/// Causal self-attention: projection, attention, output projection (two in minGPT-ddp's layout), dropout.
class CausalSelfAttention : public torch::nn::Module {
 public:
  CausalSelfAttention(const GPTConfig& config, double projection_std)
      : heads_{config.sizes().n_head}, dropout_{config.dropout}, fused_{config.fused} {
    const auto width = config.sizes().n_embd;
    const auto bias = detail::biases_of(config);
    if (config.layout == GPTLayout::gpt2)
      c_attn_ = register_module("c_attn", std::make_shared<Linear>(width, 3 * width, 0.02, bias));
    else
      attn_ = register_module("attn", std::make_shared<MultiheadProjections>(width, bias));
    c_proj_ = register_module("c_proj", std::make_shared<Linear>(width, width, projection_std, bias));
  }

  /// The result of the attention is kept under Recompute: it costs the most time to compute again for its memory. With
  /// a cache, `x_BTC` are new tokens behind those in the cache; there is no dropout then.
  template <class Run>
  at::Tensor forward(Run& run, const at::Tensor& x_BTC, AttentionCache* cache = nullptr) {
    const auto qkv = queries_keys_values(x_BTC);
    const auto attend = [this, cache](const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values) {
      return causal_attention(queries, keys, values, heads_, cache == nullptr && is_training() ? dropout_ : 0.0, cache);
    };
    auto y_BTC = run.keep(attend, qkv[0], qkv[1], qkv[2]);
    if (attn_) y_BTC = attn_->out(y_BTC);
    const auto projected_BTC =
        fused_ ? biased_linear(y_BTC, c_proj_->weight(), c_proj_->bias()) : c_proj_->forward(y_BTC);
    return at::dropout(projected_BTC, dropout_, is_training());
  }

  /// The joint projection, in GPT-2's layout.
  const Linear& qkv() const noexcept { return *c_attn_; }
  const Linear& projection() const noexcept { return *c_proj_; }

 private:
  std::vector<at::Tensor> queries_keys_values(const at::Tensor& x_BTC) const {
    if (fused_ && c_attn_) return biased_linear_parts(x_BTC, c_attn_->weight(), c_attn_->bias(), 3);
    return (c_attn_ ? c_attn_->forward(x_BTC) : attn_->in(x_BTC)).chunk(3, -1);
  }

  std::int64_t heads_;
  double dropout_;
  bool fused_;
  std::shared_ptr<Linear> c_attn_;
  std::shared_ptr<MultiheadProjections> attn_;
  std::shared_ptr<Linear> c_proj_;
};

}  // namespace ddpxx
