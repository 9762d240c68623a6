// ddpxx/config/duration_codec.hpp — a std::chrono duration: `500ms`, `30s`, `1h30m`, read and printed exactly.
#pragma once

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <limits>
#include <ratio>
#include <string>
#include <utility>

#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/raw_value.hpp>
#include <ddpxx/config/value_shape.hpp>
#include <ddpxx/core/describe.hpp>

namespace ddpxx {

namespace detail {

/// The durations of a type: from `lowest` to `highest` times `period` nanoseconds.
struct DurationLimits {
  std::int64_t period = 1;
  std::int64_t lowest = 0;
  std::int64_t highest = 0;
};

/// Reads a duration as the number of periods.
Decoded decode_duration(std::int64_t& count, const RawValue& value, const FieldFacts& facts,
                        const DurationLimits& limits);

std::string print_duration(std::int64_t nanoseconds);

}  // namespace detail

/// Durations with an integer count and a period of whole nanoseconds. One of more than 292 years, such as
/// `std::chrono::seconds::max()`, is printed as 292 years. For seconds as a floating-point number use Unit::seconds.
template <std::integral Rep, class Period>
struct ConfigCodec<std::chrono::duration<Rep, Period>> {
  using Duration = std::chrono::duration<Rep, Period>;

  static_assert(std::nano::den % Period::den == 0, "config: a duration counts nanoseconds or a multiple of them");
  static constexpr std::int64_t kPeriod = Period::num * (std::nano::den / Period::den);  // the period in nanoseconds

  static Decoded decode(Duration& field, const RawValue& value, const FieldFacts& facts) {
    std::int64_t count = 0;
    auto decoded = detail::decode_duration(count, value, facts,
                                           {.period = kPeriod,
                                            .lowest = within_64_bits(std::numeric_limits<Rep>::lowest()),
                                            .highest = within_64_bits(std::numeric_limits<Rep>::max())});
    if (decoded.problem.empty()) field = Duration{static_cast<Rep>(count)};
    return decoded;
  }
  static std::string print(Duration field) {
    constexpr auto kLowest = std::numeric_limits<std::int64_t>::lowest() / kPeriod,
                   kHighest = std::numeric_limits<std::int64_t>::max() / kPeriod;
    return detail::print_duration(std::clamp(within_64_bits(field.count()), kLowest, kHighest) * kPeriod);
  }
  static ValueShape shape(const FieldFacts&) { return {.kind = ValueShape::Kind::duration}; }

 private:
  static constexpr std::int64_t within_64_bits(Rep count) {
    constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
    return std::cmp_greater(count, kMax) ? kMax : static_cast<std::int64_t>(count);
  }
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/config/duration_codec_inl.hpp>
#endif
