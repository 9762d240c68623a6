// ddpxx/nn/key_value_cache.hpp — the keys and values of tokens that a model has seen, so that generating text computes
// only the new token.
// Shape suffixes: B batch, T tokens, H heads, D width of a head.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/layers/tensors_in.hpp>

namespace ddpxx {

/// The keys and values of one attention layer.
class AttentionCache {
 public:
  std::int64_t num_tokens() const noexcept { return num_tokens_; }

  /// Appends those of new tokens, and returns those of all tokens.
  /// Shapes  [B, H, T, D], with the same B, H and D in each call.
  std::pair<at::Tensor, at::Tensor> append(const at::Tensor& keys_BHTD, const at::Tensor& values_BHTD) {
    const auto all = num_tokens_ + keys_BHTD.size(2);
    if (!keys_.defined() || all > keys_.size(2)) {
      // Memory grows to the double, so that each token is copied a few times only.
      grow(keys_, keys_BHTD, std::max(all, 2 * num_tokens_));
      grow(values_, values_BHTD, std::max(all, 2 * num_tokens_));
    }
    keys_.narrow(2, num_tokens_, all - num_tokens_).copy_(keys_BHTD);
    values_.narrow(2, num_tokens_, all - num_tokens_).copy_(values_BHTD);
    num_tokens_ = all;
    return {keys_.narrow(2, 0, all), values_.narrow(2, 0, all)};
  }

 private:
  void grow(at::Tensor& held, const at::Tensor& like_BHTD, std::int64_t capacity) const {
    auto shape = like_BHTD.sizes().vec();
    shape[2] = capacity;
    auto larger = like_BHTD.new_empty(shape);
    if (num_tokens_ > 0) larger.narrow(2, 0, num_tokens_).copy_(held.narrow(2, 0, num_tokens_));
    held = std::move(larger);
  }

  at::Tensor keys_;
  at::Tensor values_;
  std::int64_t num_tokens_ = 0;
};

/// Texts are generated without gradients.
template <>
inline constexpr bool shows_its_tensors<AttentionCache*> = true;

/// The caches of a model's attention layers, in their order. One is for one batch of texts.
class KeyValueCache {
 public:
  /// The number of tokens in the cache of each layer.
  std::int64_t num_tokens() const noexcept { return layers_.empty() ? 0 : layers_.front().num_tokens(); }

  /// The cache of a layer; made where it is missing.
  AttentionCache& layer(std::size_t index) {
    if (index >= layers_.size()) layers_.resize(index + 1);
    return layers_[index];
  }

 private:
  std::vector<AttentionCache> layers_;
};

}  // namespace ddpxx
