// ddpxx/config/table/duration_codec.hpp — a std::chrono duration: `500ms`, `30s`, `1h30m`, read and printed
// exactly.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <ratio>
#include <string>
#include <utility>

#include <ddpxx/config/table/codec.hpp>
#include <ddpxx/config/text/duration_text.hpp>
#include <ddpxx/config/text/number.hpp>
#include <ddpxx/config/text/number_text.hpp>
#include <ddpxx/config/text/shape.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/config/text/text.hpp>
#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// Durations with an integer count and a period of whole nanoseconds. For seconds as a floating-point number use
/// Unit::seconds.
template <std::integral Rep, class Period>
struct ConfigCodec<std::chrono::duration<Rep, Period>> {
  using Duration = std::chrono::duration<Rep, Period>;

  static_assert(std::nano::den % Period::den == 0, "config: a duration counts nanoseconds or a multiple of them");
  static constexpr std::int64_t kPeriod = Period::num * (std::nano::den / Period::den);  // the period in nanoseconds

  static Decoded decode(Duration& field, const RawValue& value, const FieldFacts& facts) {
    if (auto wrong = not_a_text(value, "a duration")) return {.problem = *wrong, .place = value.place};
    const auto nanoseconds = parse_nanoseconds(value.text);
    if (!nanoseconds)
      return {.problem = shown(value.text) + " is not a duration" + in_brackets(allowed(facts)), .place = value.place};
    if (*nanoseconds % kPeriod != 0 || !std::in_range<Rep>(*nanoseconds / kPeriod))
      return {.problem = shown(value.text) + " is no multiple of " + nanoseconds_text(kPeriod), .place = value.place};
    // The bounds of the range were rounded to double, too.
    if (!detail::is_within(facts.range, static_cast<double>(*nanoseconds) / std::nano::den))
      return {.problem = detail::out_of_range(value.text, allowed_text(facts)), .place = value.place};
    field = Duration{static_cast<Rep>(*nanoseconds / kPeriod)};
    return {};
  }
  static std::string print(Duration field) {
    return yaml_quoted(nanoseconds_text(std::chrono::duration_cast<std::chrono::nanoseconds>(field).count()));
  }
  static ValueShape shape(const FieldFacts&) { return {.kind = ValueShape::Kind::duration}; }

 private:
  static std::string allowed(const FieldFacts& facts) {
    const auto range = allowed_text(facts);
    return range + (range.empty() ? "" : ", ") + "as 500ms, 30s, 10m, 1h30m, 2d";
  }
};

}  // namespace ddpxx
