// ddpxx/config/text/number.hpp — reads a number from a text, and checks its range. Integers are neither rounded nor
// wrapped.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <ddpxx/config/number_text.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/text/whole_limits.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/units.hpp>

namespace ddpxx::detail {

/// A value or the problem that makes the text invalid, and perhaps a notice about an accepted text.
template <class T>
struct NumberRead {
  std::optional<T> value{};
  std::string problem{};
  std::string notice{};
};

/// Reads an integer, written as `1000`, `1e3`, `1_000`, `1k` or `0x3e8`, or in a form that the field's unit allows.
inline NumberRead<WholeNumber> read_whole(const std::string& text, const FieldFacts& facts, const WholeLimits& limits);

/// Reads a floating-point number.
template <std::floating_point Real>
NumberRead<Real> read_real(const std::string& text, const FieldFacts& facts);

/// The range with its bounds rounded to `Real`, as the values of a field of that type are: the float 0.1F is then equal
/// to a bound of 0.1.
template <std::floating_point Real>
Range rounded_to(Range range) {
  for (auto* bound : {&range.low, &range.high})
    if (*bound && std::abs((*bound)->value) <= std::numeric_limits<Real>::max())
      (*bound)->value = static_cast<Real>((*bound)->value);
  return range;
}

/// True if the value is within the range, compared in a type that holds every 64-bit integer and every double.
inline bool is_within(const Range& range, long double value) {
  const auto low_ok = [&](const Bound& low) { return low.open ? value > low.value : value >= low.value; };
  const auto high_ok = [&](const Bound& high) { return high.open ? value < high.value : value <= high.value; };
  return (!range.low || low_ok(*range.low)) && (!range.high || high_ok(*range.high));
}

/// The text to write instead of a number with a leading zero, such as `010`, which is octal in some languages.
inline std::optional<std::string> without_leading_zero(std::string_view text) {
  const auto first = std::min(text.find_first_not_of("+-"), text.size());
  const auto number = text.substr(first);
  if (number.size() < 2 || number[0] != '0' || !is_digit(number[1])) return std::nullopt;
  if (number.find_first_not_of("0123456789_.eE") != std::string_view::npos) return std::nullopt;
  const auto rest = std::min(number.find_first_not_of("0_"), number.size());
  const bool point_follows = rest == number.size() || !is_digit(number[rest]);
  return std::string{text.substr(0, first)} + (point_follows ? "0" : "") + std::string{number.substr(rest)};
}

/// ` (allowed: WORDS)`, or an empty text without words.
inline std::string in_brackets(const std::string& allowed) {
  return allowed.empty() ? "" : " (allowed: " + allowed + ')';
}

inline std::string not_a_number(const std::string& text, const FieldFacts& facts, std::string_view noun) {
  if (const auto better = without_leading_zero(text))
    return shown(text) + " starts with a zero, which some read as octal; write " + *better;
  if (facts.unit == Unit::bytes) noun = "a size";
  if (facts.unit == Unit::seconds) noun = "a duration";
  return shown(text) + " is not " + std::string{noun} + in_brackets(allowed_text(facts));
}

inline std::string out_of_range(const std::string& text, const std::string& allowed) {
  return shown(text) + " is out of range" + in_brackets(allowed);
}

/// True for units whose suffixes, such as `k` and `M`, have a meaning of their own.
inline bool has_own_suffixes(Unit unit) { return unit == Unit::bytes || unit == Unit::seconds; }

inline std::optional<std::uint64_t> read_hexadecimal(std::string_view text) {
  if (!text.starts_with("0x") && !text.starts_with("0X")) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, status] = std::from_chars(text.data() + 2, text.data() + text.size(), value, 16);
  if (status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// A whole number of seconds from a double, which is exact up to 2^53.
inline WholeNumber whole_seconds(double seconds) {
  if (seconds != std::floor(seconds)) return {.fit = WholeNumber::Fit::fraction};
  if (std::abs(seconds) > 0x1p53) return {.fit = WholeNumber::Fit::too_large};
  return {.negative = seconds < 0, .magnitude = static_cast<std::uint64_t>(std::abs(seconds))};
}

/// The integer that the text means in that unit; none if it means none.
inline std::optional<WholeNumber> whole_of(const std::string& text, Unit unit) {
  if (unit == Unit::seconds) {
    const auto seconds = parse_seconds(text);
    const auto plain = parse_decimal(text);
    if (seconds && plain && plain->suffix.empty()) return to_whole(*plain);  // exact above 2^53, too
    return seconds ? std::optional{whole_seconds(*seconds)} : std::nullopt;
  }
  auto number = parse_decimal(text);
  if (!number) return std::nullopt;
  if (unit == Unit::bytes) {
    const auto factor = byte_factor(number->suffix);
    return factor ? std::optional{to_whole(*number, *factor)} : std::nullopt;
  }
  const auto exponent = count_exponent(number->suffix);
  if (!exponent) return std::nullopt;
  number->exponent += *exponent;
  return to_whole(*number);
}

/// The number that the text means in that unit; none if it means none, NaN if `Real` cannot hold it, as `1e400`.
template <std::floating_point Real>
std::optional<Real> real_of(const std::string& text, Unit unit) {
  constexpr Real kNone = std::numeric_limits<Real>::quiet_NaN();
  auto number = parse_decimal(text);
  const auto exponent = number ? count_exponent(number->suffix) : std::nullopt;
  if (exponent && (!has_own_suffixes(unit) || number->suffix.empty())) {
    number->exponent += *exponent;
    return to_real<Real>(*number).value_or(kNone);
  }
  std::optional<double> value;
  if (unit == Unit::seconds) value = parse_seconds(text);
  if (unit == Unit::bytes)
    if (const auto whole = whole_of(text, unit); whole && whole->fit == WholeNumber::Fit::exact)
      value = (whole->negative ? -1.0 : 1.0) * static_cast<double>(whole->magnitude);
  if (!value) return std::nullopt;
  return std::abs(*value) > std::numeric_limits<Real>::max() ? kNone : static_cast<Real>(*value);
}

inline bool is_infinity(std::string_view text) {
  const auto word = lower(text.substr(std::min(text.find_first_not_of("+-."), text.size())));
  return word == "inf" || word == "infinity";
}

inline bool is_nan(std::string_view text) { return lower(text) == "nan" || lower(text) == ".nan"; }

inline NumberRead<WholeNumber> read_whole(const std::string& text, const FieldFacts& facts, const WholeLimits& limits) {
  if (const auto value = read_hexadecimal(text); value && !has_own_suffixes(facts.unit)) {
    auto result = read_whole(std::to_string(*value), facts, limits);
    result.notice = shown(text) + " is hexadecimal and read as " + std::to_string(*value);
    return result;
  }
  const auto number = whole_of(text, facts.unit);
  if (!number || number->fit == WholeNumber::Fit::fraction)
    return {.problem = not_a_number(text, facts, "a whole number")};
  const auto magnitude = static_cast<long double>(number->magnitude);
  if (number->fit == WholeNumber::Fit::exact && !is_within(facts.range, number->negative ? -magnitude : magnitude))
    return {.problem = out_of_range(text, allowed_text(facts))};
  const auto most = number->negative ? limits.lowest : limits.highest;
  if (number->fit == WholeNumber::Fit::too_large || number->magnitude > most) {
    const auto lowest = (limits.lowest == 0 ? "" : "-") + std::to_string(limits.lowest);
    return {.problem = out_of_range(text, lowest + " to " + std::to_string(limits.highest))};
  }
  return {.value = number};
}

template <std::floating_point Real>
NumberRead<Real> read_real(const std::string& text, const FieldFacts& facts) {
  if (is_infinity(text)) {
    const bool negative = text.starts_with('-');
    const auto& bound = negative ? facts.range.low : facts.range.high;
    const Real infinity = (negative ? -1 : 1) * std::numeric_limits<Real>::infinity();
    if (bound && bound->value == infinity && !bound->open) return {.value = infinity};
  }
  if (is_infinity(text) || is_nan(text))
    return {.problem = shown(text) + " is not a finite number" + in_brackets(allowed_text(facts))};
  const auto value = real_of<Real>(text, facts.unit);
  if (!value) return {.problem = not_a_number(text, facts, "a number")};
  if (std::isnan(*value)) return {.problem = shown(text) + " does not fit a floating-point number"};
  if (!is_within(rounded_to<Real>(facts.range), *value)) return {.problem = out_of_range(text, allowed_text(facts))};
  return {.value = value};
}

}  // namespace ddpxx::detail
