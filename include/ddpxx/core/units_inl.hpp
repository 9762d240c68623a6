// ddpxx/core/units_inl.hpp — definitions of units.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <ddpxx/core/units.hpp>

namespace ddpxx {

namespace detail {

DDPXX_INLINE std::string lower(std::string_view text) {
  std::string result{text};
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

/// Moves the digits at the front of `text` to `digits`; an underscore may stand between two digits.
inline bool take_digits(std::string_view& text, std::string& digits) {
  const auto before = digits.size();
  while (!text.empty()) {
    if (is_digit(text[0])) {
      digits += text[0];
    } else if (text[0] != '_' || digits.size() == before || text.size() < 2 || !is_digit(text[1])) {
      break;
    }
    text.remove_prefix(1);
  }
  return digits.size() > before;
}

inline std::string fixed(double value, int decimals) {
  std::array<char, 64> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed, decimals);
  return {buffer.data(), end.ptr};
}

}  // namespace detail

DDPXX_INLINE std::optional<Decimal> parse_decimal(std::string_view text) {
  Decimal number;
  if (text.starts_with('-') || text.starts_with('+')) {
    number.negative = text[0] == '-';
    text.remove_prefix(1);
  }
  bool any = detail::take_digits(text, number.digits);
  if (number.digits.size() > 1 && number.digits[0] == '0') return std::nullopt;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    const auto whole_digits = number.digits.size();
    any = detail::take_digits(text, number.digits) || any;
    number.exponent -= static_cast<int>(number.digits.size() - whole_digits);
  }
  if (!any) return std::nullopt;
  if (text.size() > 1 && (text[0] == 'e' || text[0] == 'E')) {
    std::string_view rest = text.substr(1);
    const bool minus = rest[0] == '-';
    if (minus || rest[0] == '+') rest.remove_prefix(1);
    std::string digits;
    if (detail::take_digits(rest, digits)) {
      int exponent = 0;
      const auto status = std::from_chars(digits.data(), digits.data() + digits.size(), exponent).ec;
      constexpr int kBeyondAnyNumber = 1'000'000;
      if (status != std::errc{} || exponent > kBeyondAnyNumber) exponent = kBeyondAnyNumber;
      number.exponent += minus ? -exponent : exponent;
      text = rest;
    }
  }
  while (text.starts_with(' ')) text.remove_prefix(1);
  number.suffix = text;
  number.digits.erase(0, std::min(number.digits.find_first_not_of('0'), number.digits.size()));
  for (; number.digits.ends_with('0'); ++number.exponent) number.digits.pop_back();
  if (number.digits.empty()) number.exponent = 0;
  return number;
}

DDPXX_INLINE WholeNumber to_whole(const Decimal& number, std::uint64_t factor) {
  using Fit = WholeNumber::Fit;
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  if (number.digits.empty() || factor == 0) return {};
  std::uint64_t value = 0;
  for (const char c : number.digits) {
    const auto digit = static_cast<std::uint64_t>(c - '0');
    if (value > (kMax - digit) / 10)
      return {.fit = number.exponent < 0 && factor == 1 ? Fit::fraction : Fit::too_large};
    value = value * 10 + digit;
  }
  __extension__ using Wide = unsigned __int128;  // holds every product of two such numbers
  Wide product = Wide{value} * factor;
  for (int left = number.exponent; left < 0; ++left) {
    if (product % 10 != 0) return {.fit = Fit::fraction};
    product /= 10;
  }
  for (int left = number.exponent; left > 0 && product <= kMax; --left) product *= 10;
  if (product > kMax) return {.fit = Fit::too_large};
  return {.fit = Fit::exact, .negative = number.negative, .magnitude = static_cast<std::uint64_t>(product)};
}

DDPXX_INLINE std::optional<int> count_exponent(std::string_view suffix) {
  if (suffix.empty()) return 0;
  if (suffix == "k" || suffix == "K") return 3;
  if (suffix == "M") return 6;
  if (suffix == "G") return 9;
  if (suffix == "T") return 12;
  return std::nullopt;
}

DDPXX_INLINE std::optional<std::uint64_t> byte_factor(std::string_view suffix) {
  const auto unit = detail::lower(suffix);
  if (unit.empty() || unit == "b") return 1;
  const auto power = std::string_view{"kmgt"}.find(unit[0]);
  if (power == std::string_view::npos) return std::nullopt;
  const auto rest = std::string_view{unit}.substr(1);
  if (rest != "b" && rest != "ib") return std::nullopt;
  std::uint64_t factor = 1;
  for (std::size_t i = 0; i <= power; ++i) factor *= rest == "ib" ? 1024 : 1000;
  return factor;
}

namespace detail {

DDPXX_INLINE std::string with_time_units(std::string_view text) {
  std::string result{text};
  const auto colons = std::ranges::count(text, ':');
  // The last part is seconds only if it ends as a number: with an `s` behind it, `1:30:5m` would end in milliseconds.
  const bool ends_as_number = !text.empty() && (is_digit(text.back()) || text.back() == '.');
  if (ends_as_number && (colons == 2 || colons == 3)) {
    std::string_view units = colons == 3 ? "dhm" : "hm";
    for (char& c : result)
      if (c == ':') {
        c = units.front();
        units.remove_prefix(1);
      }
    const auto begins_part = [&](std::size_t i) {
      return i == 0 || std::string_view{"dhm+-"}.find(result[i - 1]) != std::string_view::npos;
    };
    for (std::size_t i = 0; i + 1 < result.size(); ++i)
      while (result[i] == '0' && is_digit(result[i + 1]) && begins_part(i)) result.erase(i, 1);  // `05` is five
    result += 's';
  }
  for (auto at = result.find("min"); at != std::string::npos; at = result.find("min", at + 1)) {
    const auto end = at + 3;
    // A letter behind it makes another word: without its `in`, `5mins` would be five milliseconds.
    if (end == result.size() || result[end] < 'a' || result[end] > 'z') result.erase(at + 1, 2);
  }
  return result;
}

}  // namespace detail

DDPXX_INLINE std::optional<double> parse_seconds(std::string_view written) {
  const auto with_units = detail::with_time_units(written);
  std::string_view text = with_units;
  double total = 0, sign = 1;  // a sign in front holds for all parts
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t nanoseconds = 0;  // the exact sum, while it is a whole number that fits
  bool is_exact = true;
  for (bool first = true; first || !text.empty(); first = false) {
    const auto end = std::min(text.find_first_of("dhmsun"), text.size());
    const auto number = parse_decimal(text.substr(0, end));
    if (!number || !number->suffix.empty() || (!first && number->negative)) return std::nullopt;
    const auto value = to_real<double>(*number);
    if (!value) return std::nullopt;
    if (number->negative) sign = -1;
    text.remove_prefix(end);
    if (text.empty()) return first ? value : std::nullopt;  // a number without its unit stands alone
    const auto* unit = detail::time_unit(text.substr(0, text.find_first_of("0123456789.+-")));
    if (unit == nullptr) return std::nullopt;
    text.remove_prefix(unit->name.size());
    total += std::abs(*value) * (static_cast<double>(unit->nanoseconds) / 1e9);
    const auto part = to_whole(*number, static_cast<std::uint64_t>(unit->nanoseconds));
    is_exact = is_exact && part.fit == WholeNumber::Fit::exact && part.magnitude <= kMax - nanoseconds;
    if (is_exact) nanoseconds += part.magnitude;
  }
  auto exact = is_exact ? parse_decimal(std::to_string(nanoseconds)) : std::nullopt;
  if (exact) {  // 4.1 * 60 is not 246 in floating point
    exact->exponent -= 9;
    total = to_real<double>(*exact).value_or(total);
  }
  return sign * total;
}

DDPXX_INLINE std::string bytes_text(std::uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  constexpr std::array kNames{" KiB", " MiB", " GiB", " TiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t power = 0;
  for (; value >= 999.95 && power + 1 < kNames.size(); ++power) value /= 1024;
  auto text = detail::fixed(value, 1);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text + kNames[power];
}

}  // namespace ddpxx
