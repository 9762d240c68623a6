// ddpxx/parallel/call_order.hpp — in which order a model calls its layers: what will be needed next, and a number for
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace ddpxx {

/// Learns the order of layer calls from one forward pass and predicts the next; follows it back in backward.
class CallOrder {
 public:
  void begin_forward() {
    if (!calls_.empty()) last_ = std::exchange(calls_, {});
    backward_at_ = 0;
  }

  /// Notes a call; returns the layer that came next after it in the pass before, if that pass went the same way here.
  std::optional<std::size_t> enter(std::size_t layer) {
    hash_ = hash_ * 31U + static_cast<std::uint32_t>(layer);
    const auto at = calls_.size();
    calls_.push_back(layer);
    backward_at_ = calls_.size();
    if (at + 1 < last_.size() && last_[at] == layer) return last_[at + 1];
    return std::nullopt;
  }

  /// Backward has come to `layer`; returns the layer called before it, which backward needs next.
  std::optional<std::size_t> enter_backward(std::size_t layer) {
    for (auto at = backward_at_; at-- > 0;)
      if (calls_[at] == layer) {
        backward_at_ = at;
        return at > 0 ? std::optional{calls_[at - 1]} : std::nullopt;
      }
    return std::nullopt;
  }

  /// A number that ranks share exactly if they noted the same calls in the same order, since the last time.
  std::uint32_t take_hash() { return std::exchange(hash_, 0U); }

 private:
  std::vector<std::size_t> calls_;
  std::vector<std::size_t> last_;
  std::size_t backward_at_ = 0;
  std::uint32_t hash_ = 0;
};

}  // namespace ddpxx
