// ddpxx/config/text/duration_text.hpp — converts nanoseconds to texts such as `1h30m` and back, exactly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <ddpxx/core/units.hpp>

namespace ddpxx::detail {

/// Reads `1h30m`; none for anything else, for fractions of a nanosecond and for more than 290 years.
inline std::optional<std::int64_t> parse_nanoseconds(std::string_view text);

/// The duration in the longest unit of which it is a whole number: `90m`.
inline std::string nanoseconds_text(std::int64_t nanoseconds);

inline std::optional<std::int64_t> parse_nanoseconds(std::string_view written) {
  const auto with_units = with_time_units(written);
  std::string_view text = with_units;
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const bool negative = text.starts_with('-');
  text.remove_prefix(negative ? 1 : 0);
  std::uint64_t total = 0;
  do {
    const auto number_end = std::min(text.find_first_of("dhmsun"), text.size());
    auto unit_end = std::min(text.find_first_of("0123456789.", number_end), text.size());
    const auto* unit = time_unit(text.substr(number_end, unit_end - number_end));
    const auto number = parse_decimal(text.substr(0, number_end));
    if (unit == nullptr || !number || number->negative || !number->suffix.empty()) return std::nullopt;
    const auto part = to_whole(*number, static_cast<std::uint64_t>(unit->nanoseconds));
    if (part.fit != WholeNumber::Fit::exact || part.magnitude > kMax - total) return std::nullopt;
    total += part.magnitude;
    text.remove_prefix(unit_end);
  } while (!text.empty());
  return negative ? -static_cast<std::int64_t>(total) : static_cast<std::int64_t>(total);
}

inline std::string nanoseconds_text(std::int64_t nanoseconds) {
  if (nanoseconds == 0) return "0s";
  for (const auto& unit : kTimeUnits)
    if (nanoseconds % unit.nanoseconds == 0)
      return std::to_string(nanoseconds / unit.nanoseconds) + std::string{unit.name};
  return {};
}

}  // namespace ddpxx::detail
