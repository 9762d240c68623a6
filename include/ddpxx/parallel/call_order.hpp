// ddpxx/parallel/call_order.hpp — records the order in which a model calls its layers, and predicts the next call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace ddpxx {

/// Records the order of calls in a forward pass and predicts the calls of the next one; in backward it predicts them in
/// reverse. Calls are recorded by unit, a group of layers that are mostly called one after the other.
class CallOrder {
 public:
  /// What the last forward pass predicts about a call.
  struct Outlook {
    std::optional<std::size_t> next;  ///< The next other unit that is called.
    bool again = false;               ///< The next call is of the same unit.
    bool last = false;                ///< This is the last call: backward begins with this unit.
  };

  void begin_forward() {
    if (!calls_.empty()) last_ = std::exchange(calls_, {});
    backward_at_ = 0;
  }
  /// The unit that the last forward pass called first.
  std::optional<std::size_t> first() const { return last_.empty() ? std::nullopt : std::optional{last_.front()}; }

  /// Records a call of a layer of `unit`; predicts nothing if the last forward pass called another unit at this place.
  Outlook enter(std::size_t unit, std::size_t layer) {
    add_to_hash(layer);
    const auto at = calls_.size();
    calls_.push_back(unit);
    backward_at_ = calls_.size();
    if (at >= last_.size() || last_[at] != unit) return {};
    Outlook outlook{
        .next = {}, .again = at + 1 < last_.size() && last_[at + 1] == unit, .last = at + 1 == last_.size()};
    for (auto then = at + 1; then < last_.size() && !outlook.next; ++then)
      if (last_[then] != unit) outlook.next = last_[then];
    return outlook;
  }

  /// Called when backward comes to a call of `unit`; returns the unit called before it, which backward needs next.
  std::optional<std::size_t> enter_backward(std::size_t unit) {
    auto at = backward_at_;
    while (at > 0 && calls_[at - 1] != unit) --at;
    if (at == 0) return std::nullopt;
    backward_at_ = --at;
    while (at > 0 && calls_[at - 1] == unit) --at;
    return at > 0 ? std::optional{calls_[at - 1]} : std::nullopt;
  }

  /// Records that the gradients of a segment are sent.
  void note_reduction(std::size_t segment) { add_to_hash(~segment); }

  /// A hash of the calls, of the reductions and of their order since the last take_hash().
  std::uint32_t take_hash() { return std::exchange(hash_, 0U); }

 private:
  void add_to_hash(std::size_t value) { hash_ = hash_ * 31U + static_cast<std::uint32_t>(value); }

  std::vector<std::size_t> calls_;
  std::vector<std::size_t> last_;
  std::size_t backward_at_ = 0;
  std::uint32_t hash_ = 0;
};

}  // namespace ddpxx
