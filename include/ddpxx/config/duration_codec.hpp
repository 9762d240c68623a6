// ddpxx/config/duration_codec.hpp — a std::chrono duration: `500ms`, `30s`, `1h30m`; read exactly, printed likewise.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <ratio>
#include <string>
#include <string_view>
#include <utility>

#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/shape.hpp>
#include <ddpxx/config/source.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/units.hpp>

namespace ddpxx {

namespace detail {

struct DurationUnit {
  std::string_view name;
  std::int64_t nanoseconds;
};
/// From long to short; each is a whole number of the next.
inline constexpr std::array kDurationUnits{DurationUnit{"d", 86'400'000'000'000},
                                           DurationUnit{"h", 3'600'000'000'000},
                                           DurationUnit{"m", 60'000'000'000},
                                           DurationUnit{"s", 1'000'000'000},
                                           DurationUnit{"ms", 1'000'000},
                                           DurationUnit{"us", 1'000},
                                           DurationUnit{"ns", 1}};

inline const DurationUnit* duration_unit(std::string_view name) {
  const auto found = std::ranges::find(kDurationUnits, name, &DurationUnit::name);
  return found == kDurationUnits.end() ? nullptr : &*found;
}

/// Reads `1h30m` into nanoseconds; none for anything else, for fractions of one and for more than 290 years.
inline std::optional<std::int64_t> parse_nanoseconds(std::string_view text) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const bool negative = text.starts_with('-');
  text.remove_prefix(negative ? 1 : 0);
  std::uint64_t total = 0;
  do {
    const auto number_end = std::min(text.find_first_of("dhmsun"), text.size());
    auto unit_end = std::min(text.find_first_of("0123456789.", number_end), text.size());
    const auto* unit = duration_unit(text.substr(number_end, unit_end - number_end));
    const auto number = parse_decimal(text.substr(0, number_end));
    if (unit == nullptr || !number || number->negative || !number->suffix.empty()) return std::nullopt;
    const auto part = to_whole(*number, static_cast<std::uint64_t>(unit->nanoseconds));
    if (part.fit != WholeNumber::Fit::exact || part.magnitude > kMost - total) return std::nullopt;
    total += part.magnitude;
    text.remove_prefix(unit_end);
  } while (!text.empty());
  return negative ? -static_cast<std::int64_t>(total) : static_cast<std::int64_t>(total);
}

}  // namespace detail

/// Whole numbers of whole nanoseconds; for a number of seconds with a fraction there is Unit::seconds.
template <std::integral Rep, class Period>
struct ConfigCodec<std::chrono::duration<Rep, Period>> {
  using Duration = std::chrono::duration<Rep, Period>;

  static_assert(std::nano::den % Period::den == 0, "config: a duration counts nanoseconds or a multiple of them");
  static constexpr std::int64_t kPeriod = Period::num * (std::nano::den / Period::den);  // in nanoseconds

  static Decoded decode(Duration& field, const GivenValue& value, const FieldFacts&) {
    if (auto wrong = not_a_text(value, "a duration")) return {.problem = *wrong, .place = value.place};
    const auto nanoseconds = detail::parse_nanoseconds(value.text);
    if (!nanoseconds)
      return {.problem = shown(value.text) + " is not a duration (allowed: as 500ms, 30s, 10m, 1h30m, 2d)",
              .place = value.place};
    if (*nanoseconds % kPeriod != 0 || !std::in_range<Rep>(*nanoseconds / kPeriod))
      return {.problem = shown(value.text) + " is no multiple of " + text_of(kPeriod), .place = value.place};
    field = Duration{static_cast<Rep>(*nanoseconds / kPeriod)};
    return {};
  }
  static std::string print(Duration field) {
    return yaml_quoted(text_of(std::chrono::duration_cast<std::chrono::nanoseconds>(field).count()));
  }
  static ValueShape shape(const FieldFacts&) { return {.kind = ValueShape::Kind::duration}; }

 private:
  /// In the longest unit that it is a whole number of.
  static std::string text_of(std::int64_t nanoseconds) {
    if (nanoseconds == 0) return "0s";
    for (const auto& unit : detail::kDurationUnits)
      if (nanoseconds % unit.nanoseconds == 0)
        return std::to_string(nanoseconds / unit.nanoseconds) + std::string{unit.name};
    return {};
  }
};

}  // namespace ddpxx
