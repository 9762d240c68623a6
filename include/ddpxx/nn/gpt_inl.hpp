// ddpxx/nn/gpt_inl.hpp — the definitions of gpt.hpp.
// Shape suffixes: B batch, T tokens, C width, F width of the feed-forward half, V vocabulary.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/machine_memory.hpp>
#include <ddpxx/core/units.hpp>
#include <ddpxx/layers/random_state.hpp>
#include <ddpxx/nn/bias_gelu.hpp>
#include <ddpxx/nn/biased_linear.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/nn/gpt_config.hpp>
#include <ddpxx/nn/modules.hpp>

namespace ddpxx {

DDPXX_INLINE FeedForward::FeedForward(const GPTConfig& config, double projection_std)
    : gelu_{config.gelu_form() == GELUForm::tanh ? "tanh" : "none"}, dropout_{config.dropout}, fused_{config.fused} {
  const auto width = config.sizes().n_embd;
  const bool gpt2 = config.layout == GPTLayout::gpt2;
  const auto bias = detail::biases_of(config);
  widen_ = register_module(gpt2 ? "c_fc" : "0", std::make_shared<Linear>(width, 4 * width, 0.02, bias));
  // minGPT scales the initial weights named c_proj only, and minGPT-ddp's second matrix has another name.
  narrow_ = register_module(gpt2 ? "c_proj" : "2",
                            std::make_shared<Linear>(4 * width, width, gpt2 ? projection_std : 0.02, bias));
}

DDPXX_INLINE at::Tensor FeedForward::forward(const at::Tensor& x_BTC) {
  const auto wide_BTF = fused_ && widen_->bias().defined()
                            ? bias_gelu(at::linear(x_BTC, widen_->weight()), widen_->bias(), gelu_)
                            : at::gelu(widen_->forward(x_BTC), gelu_);
  const auto narrow_BTC =
      fused_ ? biased_linear(wide_BTF, narrow_->weight(), narrow_->bias()) : narrow_->forward(wide_BTF);
  return at::dropout(narrow_BTC, dropout_, is_training());
}

DDPXX_INLINE GPTBlock::GPTBlock(const GPTConfig& config)
    : fused_{config.fused},
      layout_{config.layout},
      gelu_{config.gelu_form()},
      dropout_{config.dropout},
      heads_{config.sizes().n_head} {
  const auto [layers, heads, width] = config.sizes();
  const double projection_std = 0.02 / std::sqrt(2.0 * static_cast<double>(layers));
  const bool gpt2 = config.layout == GPTLayout::gpt2;
  const auto bias = detail::biases_of(config);
  norm_1_ = register_module(gpt2 ? "ln_1" : "ln1", std::make_shared<LayerNorm>(width, bias));
  attention_ = register_module("attn", std::make_shared<CausalSelfAttention>(config, projection_std));
  norm_2_ = register_module(gpt2 ? "ln_2" : "ln2", std::make_shared<LayerNorm>(width, bias));
  feed_forward_ = register_module("mlp", std::make_shared<FeedForward>(config, projection_std));
}

DDPXX_INLINE BlockParameters GPTBlock::block_parameters() const {
  const auto &qkv = attention_->qkv(), &projection = attention_->projection();
  const auto &widen = feed_forward_->widen(), &narrow = feed_forward_->narrow();
  return {norm_1_->weight(), norm_1_->bias(), qkv.weight(),   qkv.bias(),   projection.weight(), projection.bias(),
          norm_2_->weight(), norm_2_->bias(), widen.weight(), widen.bias(), narrow.weight(),     narrow.bias()};
}

DDPXX_INLINE GPT::GPT(const GPTConfig& config, std::int64_t vocab_size, std::int64_t block_size)
    : config_{config}, vocab_size_{vocab_size}, block_size_{block_size} {
  for (const auto& error : config.check()) throw Error{Errc::config, "model." + error.field + ": " + error.text};
  check_size();
  const auto [layers, heads, width] = config.sizes();
  const bool gpt2 = config.layout == GPTLayout::gpt2;
  auto stem = register_module(gpt2 ? "transformer" : "emb_stem", std::make_shared<torch::nn::Module>());
  tokens_ = stem->register_module(gpt2 ? "wte" : "tok_emb", std::make_shared<Embedding>(vocab_size, width, 0.02));
  if (gpt2)
    positions_ = stem->register_module("wpe", std::make_shared<Embedding>(block_size, width, 0.02));
  else
    position_table_ = stem->register_parameter("pos_emb", at::zeros({1, block_size, width}));
  auto list = std::make_shared<torch::nn::Module>();
  for (std::int64_t i = 0; i < layers; ++i)
    blocks_.push_back(list->register_module(std::to_string(i), std::make_shared<GPTBlock>(config)));
  if (gpt2)
    stem->register_module("h", list);
  else
    register_module("blocks", list);
  norm_ = (gpt2 ? *stem : *this).register_module("ln_f", std::make_shared<LayerNorm>(width, detail::biases_of(config)));
  if (!config.tied_head)
    head_ = register_module(gpt2 ? "lm_head" : "head", std::make_shared<Linear>(width, vocab_size, 0.02, Bias::none));
}

DDPXX_INLINE std::shared_ptr<torch::nn::Module> GPT::clone(const std::optional<at::Device>& device) const {
  const c10::NoGradGuard no_grad;
  const RandomScope random{random_states(at::kCPU)};
  auto copy = std::make_shared<GPT>(config_, vocab_size_, block_size_);
  const auto ours = modules(/*include_self=*/false), theirs = copy->modules(/*include_self=*/false);
  if (typeid(*this) != typeid(GPT) || named_parameters().keys() != copy->named_parameters().keys() ||
      !buffers().empty() || ours.size() != theirs.size())
    throw Error{Errc::config,
                "GPT::clone() copies what GPT has registered, and this model is of a derived class or has more "
                "parameters, buffers or modules: write a class for the model that overrides clone(), or choose another "
                "strategy than dp"};
  const auto target = device.value_or(tokens_->weight().device());
  const auto from = parameters();
  auto into = copy->parameters();
  for (std::size_t i = 0; i < from.size(); ++i) {
    into[i].set_data(from[i].to(target, from[i].scalar_type(), /*non_blocking=*/false, /*copy=*/true));
    into[i].set_requires_grad(from[i].requires_grad());
  }
  copy->train(is_training());
  // A module comes before those inside it, which train() sets too.
  for (std::size_t i = 0; i < ours.size(); ++i) theirs[i]->train(ours[i]->is_training());
  return copy;
}

DDPXX_INLINE double GPT::count_parameters(const GPTConfig& config, std::int64_t vocab_size, std::int64_t block_size) {
  const auto sizes = config.sizes();
  const auto layers = static_cast<double>(sizes.n_layer), width = static_cast<double>(sizes.n_embd);
  // In numbers of width * width and of width: the matrices and biases of qkv have 3 and 3, those of a projection 1 and
  // 1, and those of the feed-forward half 8 and 5. mingpt_ddp has a second projection.
  const double projections = config.layout == GPTLayout::gpt2 ? 1 : 2;
  const double matrices = 11 + projections, biases = config.bias ? 8 + projections : 0, norm = config.bias ? 2 : 1;
  const double in_layer = matrices * width * width + (biases + 2 * norm) * width;
  const auto tables = config.tied_head ? 1.0 : 2.0;
  const auto rows = tables * static_cast<double>(vocab_size) + static_cast<double>(block_size) + norm;
  return layers * in_layer + rows * width;
}

DDPXX_INLINE std::int64_t GPT::num_block_parameters() const {
  std::int64_t count = 0;
  for (const auto& block : blocks_)
    for (const auto& parameter : block->parameters()) count += parameter.numel();
  return count;
}

DDPXX_INLINE at::Tensor GPT::embedded(const at::Tensor& ids_BT, std::int64_t first) {
  const auto T = ids_BT.size(1);
  const auto position_TC = positions_ ? positions_->forward(at::arange(first, first + T, ids_BT.options()))
                                      : position_table_.narrow(1, first, T);
  return at::dropout(tokens_->forward(ids_BT) + position_TC, config_.dropout, is_training());
}

DDPXX_INLINE void GPT::check_size() const {
  const auto sizes = config_.sizes();
  const auto bytes = 4 * count_parameters(config_, vocab_size_, block_size_);
  const auto there = machine_memory_bytes();
  if (bytes <= static_cast<double>(there)) return;
  constexpr double kMaxShown = 9e18;  // bytes_text() takes 64 bits
  throw Error{Errc::config,
              "model: " + std::to_string(sizes.n_layer) + " layers of width " + std::to_string(sizes.n_embd) +
                  " have weights of " + (bytes > kMaxShown ? "more than " : "") +
                  bytes_text(static_cast<std::uint64_t>(std::min(bytes, kMaxShown))) + ", and this machine has " +
                  bytes_text(there) + " of memory: choose a smaller model.n_layer or model.n_embd"};
}

}  // namespace ddpxx
