// ddpxx/nn/gpt.hpp — a GPT with minGPT's structure and initialisation.
// Shape suffixes: B batch, T tokens, C width, F width of the feed-forward half, V vocabulary.
// Source  minGPT and minGPT-ddp (structure, initialisation, names of the parameters).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <torch/nn/module.h>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/layers/layer.hpp>
#include <ddpxx/nn/add_norm.hpp>
#include <ddpxx/nn/attention.hpp>
#include <ddpxx/nn/chunked_cross_entropy.hpp>
#include <ddpxx/nn/concept.hpp>
#include <ddpxx/nn/fused_block.hpp>
#include <ddpxx/nn/gpt_config.hpp>
#include <ddpxx/nn/key_value_cache.hpp>
#include <ddpxx/nn/mingpt_state.hpp>
#include <ddpxx/nn/modules.hpp>

namespace ddpxx {

/// The feed-forward half of a block: a layer to four times the width, GELU, a layer back, dropout.
class FeedForward : public torch::nn::Module {
 public:
  FeedForward(const GPTConfig& config, double projection_std);
  at::Tensor forward(const at::Tensor& x_BTC);
  const Linear& widen() const noexcept { return *widen_; }
  const Linear& narrow() const noexcept { return *narrow_; }

 private:
  std::string_view gelu_;
  double dropout_;
  bool fused_;
  std::shared_ptr<Linear> widen_;
  std::shared_ptr<Linear> narrow_;
};

/// One transformer block: x + attention(norm(x)), then x + feed-forward(norm(x)). With GPTConfig::fused it is one
/// operation of autograd where fused_block() can compute it, and has fewer operations elsewhere.
class GPTBlock : public torch::nn::Module, public Layer {
 public:
  explicit GPTBlock(const GPTConfig& config);
  template <class Run>
  at::Tensor forward(Run& run, const at::Tensor& x_BTC, AttentionCache* cache = nullptr) {
    if (fused_ && cache == nullptr && is_plain()) {
      const auto parameters = block_parameters();
      if (fused_block_runs(x_BTC, parameters, heads_)) return fused_block(x_BTC, parameters, heads_);
    }
    if (fused_) {
      const auto [same_BTC, first_BTC] = residual_norm(x_BTC, norm_1_->weight(), norm_1_->bias());
      const auto attended_BTC = attention_->forward(run, first_BTC, cache);
      const auto [sum_BTC, normed_BTC] = add_norm(same_BTC, attended_BTC, norm_2_->weight(), norm_2_->bias());
      return sum_BTC + feed_forward_->forward(normed_BTC);
    }
    const auto y_BTC = x_BTC + attention_->forward(run, norm_1_->forward(x_BTC), cache);
    return y_BTC + feed_forward_->forward(norm_2_->forward(y_BTC));
  }

 private:
  /// True if this block has GPT-2's structure and GELU, and drops nothing out.
  bool is_plain() const {
    return layout_ == GPTLayout::gpt2 && gelu_ == GELUForm::tanh && (dropout_ == 0 || !is_training());
  }
  BlockParameters block_parameters() const;

  bool fused_;
  GPTLayout layout_;
  GELUForm gelu_;
  double dropout_;
  std::int64_t heads_;
  std::shared_ptr<LayerNorm> norm_1_;
  std::shared_ptr<CausalSelfAttention> attention_;
  std::shared_ptr<LayerNorm> norm_2_;
  std::shared_ptr<FeedForward> feed_forward_;
};

/// A decoder-only transformer over token ids.
/// Errors  `config` for sizes that do not fit each other.
class GPT : public torch::nn::Module {
 public:
  GPT(const GPTConfig& config, std::int64_t vocab_size, std::int64_t block_size);

  /// A copy on `device`, by default on the device of this model, with parameters of the same types. Parameters that
  /// are frozen stay so, and each module has the mode of the module that it is a copy of. The state of random numbers
  /// does not change.
  /// Errors  `config` for an object of a derived class, which has to override clone(), and for a GPT in which a program
  ///         has registered parameters, buffers or modules of its own, which the copy would lack.
  DDPXX_INLINE std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override;

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
    return at::linear(normed(x_BTC), head_weight());
  }

  /// The summed cross-entropy of `batch.targets`; a target of -1 does not count.
  template <class Run, class Batch>
  Loss forward(Run& run, const Batch& batch) {
    const auto targets_N = batch.targets.reshape({-1});
    if (config_.loss_chunk > 0)
      return {
          chunked_cross_entropy(hidden(run, batch.inputs).flatten(0, 1), head_weight(), targets_N, config_.loss_chunk)};
    const auto logits_BTV = logits(run, batch.inputs);
    const auto type = at::toOpMathType(logits_BTV.scalar_type());  // 16-bit logits get their loss in float32
    return {at::cross_entropy_loss(logits_BTV.view({-1, logits_BTV.size(-1)}).to(type), targets_N, {},
                                   at::Reduction::Sum, /*ignore_index=*/-1)};
  }

  /// minGPT's rule: the matrices of linear layers decay; biases, norms and embeddings do not.
  bool decays(const std::string& name, const at::Tensor& parameter) const { return decays_in_mingpt(name, parameter); }

  /// The number of parameters of a model that is not made yet, as a double since it may exceed every integer.
  static double count_parameters(const GPTConfig& config, std::int64_t vocab_size, std::int64_t block_size);

  /// The number of parameters in the blocks, without embeddings and head, which minGPT-ddp prints.
  std::int64_t num_block_parameters() const;

 private:
  /// [V, C]; a tied head has no parameter of its own, so that the weight is one parameter with one name.
  const at::Tensor& head_weight() const noexcept { return head_ ? head_->weight() : tokens_->weight(); }

  /// The input of the head, for every position.
  template <class Run>
  at::Tensor hidden(Run& run, const at::Tensor& ids_BT) {
    return normed(run(blocks_, embedded(ids_BT, 0)));
  }

  /// The norm behind the last block.
  at::Tensor normed(const at::Tensor& x_BTC) const {
    return config_.fused ? layer_norm(x_BTC, norm_->weight(), norm_->bias()) : norm_->forward(x_BTC);
  }

  /// The input of the first block, for tokens of which the first stands at the position `first`.
  at::Tensor embedded(const at::Tensor& ids_BT, std::int64_t first);

  /// Refuses a model whose weights exceed the memory of the machine, before anything is allocated.
  void check_size() const;

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

#ifndef DDPXX_CORE
#include <ddpxx/nn/gpt_inl.hpp>
#endif
