// ddpxx/core/units.hpp — numbers as people write them: `1e3`, `1_000`, `50k`, `25MiB`, `1h30m`; read exactly.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <ddpxx/core/inline.hpp>

namespace ddpxx {

/// A decimal number, kept exactly: digits · 10^exponent, and the letters that follow it.
struct Decimal {
  bool negative = false;
  std::string digits;  ///< Neither starts nor ends with 0; empty for zero.
  int exponent = 0;
  std::string suffix;  ///< Spaces before it are left out.
};

/// Reads `-1_000.5e3 MiB`. None for anything else, and for a needless zero in front: `010` is 8 to some and 10 to
/// others.
std::optional<Decimal> parse_decimal(std::string_view text);

/// A whole number as sign and size, which holds those of every integer type; or why it is none.
struct WholeNumber {
  enum class Fit { exact, fraction, too_large } fit = Fit::exact;
  bool negative = false;
  std::uint64_t magnitude = 0;
};

/// digits · 10^exponent · factor, without rounding.
WholeNumber to_whole(const Decimal& number, std::uint64_t factor = 1);

/// The nearest floating-point number; none when it is too large or too small for one. The suffix is not looked at.
template <std::floating_point Real>
std::optional<Real> to_real(const Decimal& number);

/// `k`, `M`, `G` and `T` as a power of ten; 0 for no suffix, none for another.
std::optional<int> count_exponent(std::string_view suffix);

/// `B`, `kB`, `MB`, `GB`, `TB` count by 1000, `KiB`, `MiB`, `GiB`, `TiB` by 1024; none for another. Case does not
/// matter.
std::optional<std::uint64_t> byte_factor(std::string_view suffix);

/// `10us`, `500ms`, `30s`, `10m`, `5min`, `1h30m`, `2d`, `1:30:00` (hours, minutes, seconds; perhaps days in front), or
/// a plain number of seconds. None for anything else.
std::optional<double> parse_seconds(std::string_view text);

/// A size for the reader: `25 MiB`, `1.5 GiB`, `512 B`.
std::string bytes_text(std::uint64_t bytes);

template <std::floating_point Real>
std::optional<Real> to_real(const Decimal& number) {
  if (number.digits.empty()) return number.negative ? -Real{0} : Real{0};
  const auto text = (number.negative ? "-" : "") + number.digits + 'e' + std::to_string(number.exponent);
  Real value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{}) return std::nullopt;
  return value;
}

namespace detail {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string lower(std::string_view text);

/// The text without the spaces around it.
inline std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

/// `1:30:00` as `1h30m0s` and `2:12:00:00` as `2d12h0m0s`, `5min` as `5m`; any other text as it is.
std::string with_time_units(std::string_view text);

struct TimeUnit {
  std::string_view name;
  std::int64_t nanoseconds;
};
/// Units of time from long to short; each is a multiple of the next.
inline constexpr std::array kTimeUnits{TimeUnit{"d", 86'400'000'000'000},
                                       TimeUnit{"h", 3'600'000'000'000},
                                       TimeUnit{"m", 60'000'000'000},
                                       TimeUnit{"s", 1'000'000'000},
                                       TimeUnit{"ms", 1'000'000},
                                       TimeUnit{"us", 1'000},
                                       TimeUnit{"ns", 1}};

/// The unit of a name; null if there is none.
inline const TimeUnit* time_unit(std::string_view name) {
  const auto found = std::ranges::find(kTimeUnits, name, &TimeUnit::name);
  return found == kTimeUnits.end() ? nullptr : &*found;
}

}  // namespace detail

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/core/units_inl.hpp>
#endif
