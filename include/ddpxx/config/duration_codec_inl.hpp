// ddpxx/config/duration_codec_inl.hpp — the functions of duration_codec.hpp.
#pragma once

#include <cstdint>
#include <ratio>
#include <string>

#include <ddpxx/config/duration_codec.hpp>
#include <ddpxx/config/number_text.hpp>
#include <ddpxx/config/raw_value.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/text/duration_text.hpp>
#include <ddpxx/config/text/number.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx::detail {

inline std::string allowed_durations(const FieldFacts& facts) {
  const auto range = allowed_text(facts);
  return range + (range.empty() ? "" : ", ") + "as 500ms, 30s, 10m, 1h30m, 2d";
}

DDPXX_INLINE Decoded decode_duration(std::int64_t& count, const RawValue& value, const FieldFacts& facts,
                                     const DurationLimits& limits) {
  if (auto wrong = not_a_text(value, "a duration")) return {.problem = *wrong, .place = value.place};
  const auto nanoseconds = parse_nanoseconds(value.text);
  if (!nanoseconds)
    return {.problem = shown(value.text) + " is not a duration" + in_brackets(allowed_durations(facts)),
            .place = value.place};
  const auto whole = *nanoseconds / limits.period;
  if (*nanoseconds % limits.period != 0)
    return {.problem = shown(value.text) + " is not a multiple of " + nanoseconds_text(limits.period),
            .place = value.place};
  if (whole < limits.lowest || whole > limits.highest) {
    // In nanoseconds this bound fits into 64 bits, since the duration is beyond it and fits; the other one may not.
    const bool is_low = whole < limits.lowest;
    const auto bound = nanoseconds_text((is_low ? limits.lowest : limits.highest) * limits.period);
    return {.problem = out_of_range(value.text, (is_low ? "at least " : "at most ") + bound), .place = value.place};
  }
  // The bounds of the range were rounded to double, too.
  if (!is_within(facts.range, static_cast<double>(*nanoseconds) / std::nano::den))
    return {.problem = out_of_range(value.text, allowed_text(facts)), .place = value.place};
  count = whole;
  return {};
}

DDPXX_INLINE std::string print_duration(std::int64_t nanoseconds) { return yaml_quoted(nanoseconds_text(nanoseconds)); }

}  // namespace ddpxx::detail
