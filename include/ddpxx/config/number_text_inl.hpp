// ddpxx/config/number_text_inl.hpp — the functions of number_text.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <string>

#include <ddpxx/config/number_text.hpp>
#include <ddpxx/config/text/duration_text.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

namespace detail {

template <std::floating_point Real>
std::string shortest_text(Real value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value < 0 ? "-.inf" : ".inf";
  std::array<char, 64> buffer{};
  const auto size = std::abs(value);
  const bool plain = size == 0 || (size >= Real{1e-5F} && size < Real{1e15F});
  const auto form = plain ? std::chars_format::fixed : std::chars_format::scientific;
  std::string text(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, form).ptr);
  if (text.find('.') == std::string::npos) text.insert(std::min(text.find('e'), text.size()), ".0");
  return text;
}

/// `above 0`, `0 to 1`, `at least 1 and below 8`, `above 0s`; empty without bounds.
inline std::string range_text(const Range& range) {
  const auto number = [&](double value) {
    if (range.is_of_time) return nanoseconds_text(static_cast<std::int64_t>(std::llround(value * 1e9)));
    auto text = real_text(value);
    if (text.ends_with(".0")) text.resize(text.size() - 2);
    return text;
  };
  const auto low = range.low ? (range.low->open ? "above " : "at least ") + number(range.low->value) : "";
  const auto high = range.high ? (range.high->open ? "below " : "at most ") + number(range.high->value) : "";
  if (low.empty() || high.empty()) return low + high;
  if (!range.low->open && !range.high->open) return number(range.low->value) + " to " + number(range.high->value);
  return low + " and " + high;
}

}  // namespace detail

DDPXX_INLINE std::string real_text(double value) { return detail::shortest_text(value); }
DDPXX_INLINE std::string real_text(float value) { return detail::shortest_text(value); }

DDPXX_INLINE std::string allowed_text(const FieldFacts& facts) {
  const auto range = detail::range_text(facts.range);
  const std::string unit = facts.unit == Unit::bytes     ? "in bytes, or as 64kB, 25MiB, 2GB"
                           : facts.unit == Unit::seconds ? "in seconds, or as 500ms, 30s, 10m, 1h30m, 2d"
                                                         : "";
  return range + (range.empty() || unit.empty() ? "" : ", ") + unit;
}

}  // namespace ddpxx
