// ddpxx/parallel/call_order.hpp — in which order a model calls its layers: what will be needed next, and a number for
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace ddpxx {

/// Learns the order of calls from one forward pass and predicts the next; follows it back in backward. What is called
/// is a unit of layers; layers of one unit are mostly called one after the other.
class CallOrder {
 public:
  /// What the pass before says about a call.
  struct Outlook {
    std::optional<std::size_t> next;  ///< The unit needed after this one.
    bool again = false;               ///< The next call is of this unit once more.
    bool last = false;                ///< No other call comes: backward begins with this unit.
  };

  void begin_forward() {
    if (!calls_.empty()) last_ = std::exchange(calls_, {});
    backward_at_ = 0;
  }
  /// The unit that the pass before called first.
  std::optional<std::size_t> first() const { return last_.empty() ? std::nullopt : std::optional{last_.front()}; }

  /// Notes a call of a unit's layer; looks ahead if the pass before went the same way here.
  Outlook enter(std::size_t unit, std::size_t layer) {
    hash_ = hash_ * 31U + static_cast<std::uint32_t>(layer);
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

  /// Backward has come to a call of `unit`; returns the unit called before it, which backward needs next.
  std::optional<std::size_t> enter_backward(std::size_t unit) {
    auto at = backward_at_;
    while (at > 0 && calls_[at - 1] != unit) --at;
    if (at == 0) return std::nullopt;
    backward_at_ = --at;
    while (at > 0 && calls_[at - 1] == unit) --at;
    return at > 0 ? std::optional{calls_[at - 1]} : std::nullopt;
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
