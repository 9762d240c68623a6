// ddpxx/nn/gpt.hpp — a GPT with minGPT's structure and initialisation.
// Shape suffixes: B batch, T tokens, C width, F width of the feed-forward half, V vocabulary.
// Source  minGPT and minGPT-ddp (structure, initialisation, names of the parameters).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/machine_memory.hpp>
#include <ddpxx/core/units.hpp>
#include <ddpxx/layers/layer.hpp>
#include <ddpxx/layers/random_state.hpp>
#include <ddpxx/nn/add_norm.hpp>
#include <ddpxx/nn/attention.hpp>
#include <ddpxx/nn/bias_gelu.hpp>
#include <ddpxx/nn/chunked_cross_entropy.hpp>
#include <ddpxx/nn/concept.hpp>
#include <ddpxx/nn/gpt_config.hpp>
#include <ddpxx/nn/key_value_cache.hpp>
#include <ddpxx/nn/mingpt_state.hpp>
#include <ddpxx/nn/modules.hpp>

namespace ddpxx {

/// The feed-forward half of a block: a layer to four times the width, GELU, a layer back, dropout.
class FeedForward : public torch::nn::Module {
 public:
  FeedForward(const GPTConfig& config, double projection_std)
      : gelu_{config.layout == GPTLayout::gpt2 ? "tanh" : "none"}, dropout_{config.dropout}, fused_{config.fused} {
    const auto width = config.sizes().n_embd;
    const bool gpt2 = config.layout == GPTLayout::gpt2;
    widen_ = register_module(gpt2 ? "c_fc" : "0", std::make_shared<Linear>(width, 4 * width, 0.02));
    // minGPT scales the initial weights named c_proj only, and minGPT-ddp's second matrix has another name.
    narrow_ = register_module(gpt2 ? "c_proj" : "2",
                              std::make_shared<Linear>(4 * width, width, gpt2 ? projection_std : 0.02));
  }
  at::Tensor forward(const at::Tensor& x_BTC) {
    const auto wide_BTF = fused_ ? bias_gelu(at::linear(x_BTC, widen_->weight()), widen_->bias(), gelu_)
                                 : at::gelu(widen_->forward(x_BTC), gelu_);
    return at::dropout(narrow_->forward(wide_BTF), dropout_, is_training());
  }

 private:
  std::string_view gelu_;
  double dropout_;
  bool fused_;
  std::shared_ptr<Linear> widen_;
  std::shared_ptr<Linear> narrow_;
};

/// One transformer block: x + attention(norm(x)), then x + feed-forward(norm(x)).
class GPTBlock : public torch::nn::Module, public Layer {
 public:
  explicit GPTBlock(const GPTConfig& config) : fused_{config.fused} {
    const auto [layers, heads, width] = config.sizes();
    const double projection_std = 0.02 / std::sqrt(2.0 * static_cast<double>(layers));
    const bool gpt2 = config.layout == GPTLayout::gpt2;
    norm_1_ = register_module(gpt2 ? "ln_1" : "ln1", std::make_shared<LayerNorm>(width));
    attention_ = register_module("attn", std::make_shared<CausalSelfAttention>(config, projection_std));
    norm_2_ = register_module(gpt2 ? "ln_2" : "ln2", std::make_shared<LayerNorm>(width));
    feed_forward_ = register_module("mlp", std::make_shared<FeedForward>(config, projection_std));
  }
  template <class Run>
  at::Tensor forward(Run& run, const at::Tensor& x_BTC, AttentionCache* cache = nullptr) {
    const auto attended_BTC = attention_->forward(run, norm_1_->forward(x_BTC), cache);
    if (fused_) {
      const auto [sum_BTC, normed_BTC] = add_norm(x_BTC, attended_BTC, norm_2_->weight(), norm_2_->bias());
      return sum_BTC + feed_forward_->forward(normed_BTC);
    }
    const auto y_BTC = x_BTC + attended_BTC;
    return y_BTC + feed_forward_->forward(norm_2_->forward(y_BTC));
  }

 private:
  bool fused_;
  std::shared_ptr<LayerNorm> norm_1_;
  std::shared_ptr<CausalSelfAttention> attention_;
  std::shared_ptr<LayerNorm> norm_2_;
  std::shared_ptr<FeedForward> feed_forward_;
};

/// A decoder-only transformer over token ids.
/// Errors  `config` for sizes that do not fit each other.
class GPT : public torch::nn::Module {
 public:
  GPT(const GPTConfig& config, std::int64_t vocab_size, std::int64_t block_size)
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
    norm_ = (gpt2 ? *stem : *this).register_module("ln_f", std::make_shared<LayerNorm>(width));
    if (!config.tied_head)
      head_ = register_module(gpt2 ? "lm_head" : "head", std::make_shared<Linear>(width, vocab_size, 0.02, Bias::none));
  }

  /// A copy on `device`, by default on the device of this model. The state of random numbers does not change.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>& device = std::nullopt) const override {
    const c10::NoGradGuard no_grad;
    const RandomScope random{random_states(at::kCPU)};
    auto copy = std::make_shared<GPT>(config_, vocab_size_, block_size_);
    copy->to(device.value_or(tokens_->weight().device()));
    const auto from = parameters();
    auto into = copy->parameters();
    for (std::size_t i = 0; i < from.size(); ++i) into[i].copy_(from[i]);
    copy->train(is_training());
    return copy;
  }

  std::int64_t block_size() const noexcept { return block_size_; }

  /// Scores of the next token, for every position.
  /// Shapes  `ids_BT` int64, T at most block_size; result [B, T, V].
  template <class Run>
  at::Tensor logits(Run& run, const at::Tensor& ids_BT) {
    return at::linear(hidden(run, ids_BT), head_weight());
  }

  /// Scores of the next token, for new tokens that follow those in the cache, to which they are added. The model is in
  /// evaluation mode, and gradients are disabled.
  /// Shapes  `ids_BT` int64, with the tokens in the cache at most block_size; result [B, T, V].
  template <class Run>
  at::Tensor logits(Run& run, const at::Tensor& ids_BT, KeyValueCache& cache) {
    auto x_BTC = embedded(ids_BT, cache.num_tokens());
    for (std::size_t i = 0; i < blocks_.size(); ++i) x_BTC = run(*blocks_[i], x_BTC, &cache.layer(i));
    return at::linear(norm_->forward(x_BTC), head_weight());
  }

  /// The summed cross-entropy of `batch.targets`; a target of -1 does not count.
  template <class Run, class Batch>
  Loss forward(Run& run, const Batch& batch) {
    const auto targets_N = batch.targets.reshape({-1});
    if (config_.loss_chunk > 0)
      return {
          chunked_cross_entropy(hidden(run, batch.inputs).flatten(0, 1), head_weight(), targets_N, config_.loss_chunk)};
    const auto logits_BTV = logits(run, batch.inputs);
    return {at::cross_entropy_loss(logits_BTV.view({-1, logits_BTV.size(-1)}).to(at::kFloat), targets_N, {},
                                   at::Reduction::Sum, /*ignore_index=*/-1)};
  }

  /// minGPT's rule: the matrices of linear layers decay; biases, norms and embeddings do not.
  bool decays(const std::string& name, const at::Tensor& parameter) const { return decays_in_mingpt(name, parameter); }

  /// The number of parameters of a model that is not made yet, as a double since it may exceed every integer.
  static double count_parameters(const GPTConfig& config, std::int64_t vocab_size, std::int64_t block_size) {
    const auto sizes = config.sizes();
    const auto layers = static_cast<double>(sizes.n_layer), width = static_cast<double>(sizes.n_embd);
    // mingpt_ddp has a second projection in each layer.
    const double in_layer =
        config.layout == GPTLayout::gpt2 ? 12 * width * width + 13 * width : 13 * width * width + 14 * width;
    const auto tables = config.tied_head ? 1.0 : 2.0;
    const auto rows = tables * static_cast<double>(vocab_size) + static_cast<double>(block_size) + 2;
    return layers * in_layer + rows * width;
  }

  /// The number of parameters in the blocks, without embeddings and head, which minGPT-ddp prints.
  std::int64_t num_block_parameters() const {
    std::int64_t count = 0;
    for (const auto& block : blocks_)
      for (const auto& parameter : block->parameters()) count += parameter.numel();
    return count;
  }

 private:
  /// [V, C]; a tied head has no parameter of its own, so that the weight is one parameter with one name.
  const at::Tensor& head_weight() const noexcept { return head_ ? head_->weight() : tokens_->weight(); }

  /// The input of the head, for every position.
  template <class Run>
  at::Tensor hidden(Run& run, const at::Tensor& ids_BT) {
    return norm_->forward(run(blocks_, embedded(ids_BT, 0)));
  }

  /// The input of the first block, for tokens of which the first stands at the position `first`.
  at::Tensor embedded(const at::Tensor& ids_BT, std::int64_t first) {
    const auto T = ids_BT.size(1);
    const auto position_TC = positions_ ? positions_->forward(at::arange(first, first + T, ids_BT.options()))
                                        : position_table_.narrow(1, first, T);
    return at::dropout(tokens_->forward(ids_BT) + position_TC, config_.dropout, is_training());
  }

  /// Refuses a model whose weights exceed the memory of the machine, before anything is allocated.
  void check_size() const {
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

  GPTConfig config_;
  std::int64_t vocab_size_;
  std::int64_t block_size_;
  std::shared_ptr<Embedding> tokens_;
  std::shared_ptr<Embedding> positions_;
  at::Tensor position_table_;
  std::vector<std::shared_ptr<GPTBlock>> blocks_;
  std::shared_ptr<LayerNorm> norm_;
  std::shared_ptr<Linear> head_;  ///< Null if the head is tied to the token embedding.
};

}  // namespace ddpxx
