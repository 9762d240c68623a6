// ddpxx/core/range.hpp — the range of a number or a duration that a field of a config accepts.
#pragma once

#include <optional>

namespace ddpxx {

struct Bound {
  double value = 0;
  bool open = false;  ///< The value itself is not allowed.
};

/// A std::chrono duration.
template <class T>
concept DurationLike = requires(const T& duration) {
  typename T::period;
  duration.count();
};

/// Where a range ends: a number; or a std::chrono duration, which stands for its seconds.
struct BoundValue {
  double value;

  // Implicit, so that a range reads above(0), below(1h).
  constexpr BoundValue(double number) : value{number} {}  // NOLINT(google-explicit-constructor)
  template <DurationLike Duration>
  constexpr BoundValue(Duration duration)  // NOLINT(google-explicit-constructor)
      : value{static_cast<double>(duration.count()) * static_cast<double>(Duration::period::num) /
              static_cast<double>(Duration::period::den)} {}
};

/// The values that a field accepts. Infinity is accepted only if a bound allows it, as `at_most(infinity)` does; a
/// duration is never infinite. NaN is never accepted.
struct Range {
  std::optional<Bound> low{};
  std::optional<Bound> high{};
  bool is_of_time = false;  ///< The field is a std::chrono duration, and the bounds are seconds.
};

constexpr Range above(BoundValue low) { return {.low = Bound{low.value, true}}; }
constexpr Range at_least(BoundValue low) { return {.low = Bound{low.value, false}}; }
constexpr Range below(BoundValue high) { return {.high = Bound{high.value, true}}; }
constexpr Range at_most(BoundValue high) { return {.high = Bound{high.value, false}}; }
constexpr Range between(BoundValue low, BoundValue high) {
  return {.low = Bound{low.value, false}, .high = Bound{high.value, false}};
}

}  // namespace ddpxx
