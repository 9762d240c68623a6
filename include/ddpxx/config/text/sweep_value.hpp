// ddpxx/config/text/sweep_value.hpp — reads the values of `key=1,2,3`, `key=choice(a,b)` and `key=range(0,10,2)` in a
// sweep.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/core/units.hpp>

namespace ddpxx::detail {

/// Maximum number of jobs in a sweep.
inline constexpr std::size_t kMaxSweepJobs = 10'000;

/// The values in order, each as it would be written alone, or the problem that makes the text invalid.
struct SweepValue {
  std::vector<std::string> values{};
  std::string problem{};
};

/// Reads the text behind `key=` in a sweep. Commas separate values, except inside quotes and brackets, so that
/// `[1,2],[3,4]` are two lists. A text without a sweep is one value.
inline SweepValue read_sweep_value(std::string_view text);

/// True for several values or a function of a sweep. If one value is expected, `-m` was probably forgotten.
inline bool looks_like_sweep(std::string_view text);

struct CommaParts {
  std::vector<std::string_view> parts{};  ///< The parts, without surrounding spaces.
  char open = '\0';                       ///< A quote or bracket that is never closed; NUL if all are closed.
};

/// Splits a text at commas outside of quotes and brackets. A quote opens only at the start of a value: `don't` is a
/// word.
inline CommaParts split_at_commas(std::string_view text) {
  static constexpr std::string_view kOpen = "([{", kClose = ")]}";
  CommaParts result;
  std::string open;
  char quote = '\0';
  bool value_starts = true;
  std::size_t start = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != '\0') {
      if (c == '\\')
        ++i;
      else if (c == quote)
        quote = '\0';
      continue;
    }
    if (value_starts && (c == '"' || c == '\'')) {
      quote = c;
    } else if (kOpen.find(c) != std::string_view::npos) {
      open += c;
    } else if (!open.empty() && c == kClose[kOpen.find(open.back())]) {
      open.pop_back();
    } else if (c == ',' && open.empty()) {
      result.parts.push_back(trimmed(text.substr(start, i - start)));
      start = i + 1;
    }
    const bool opens = kOpen.find(c) != std::string_view::npos || c == ',' || (c == ':' && !open.empty());
    value_starts = opens || (c == ' ' && value_starts);
  }
  result.parts.push_back(trimmed(text.substr(start)));
  result.open = quote != '\0' || open.empty() ? quote : open.back();
  return result;
}

/// The name in front of the bracket if it is one of Hydra's functions for sweeps; else empty.
inline std::string_view sweep_function(std::string_view text) {
  static constexpr std::array<std::string_view, 7> kNames{"choice", "range",   "interval", "glob",
                                                          "sort",   "shuffle", "tag"};
  const auto name = text.substr(0, std::min(text.find('('), text.size()));
  const bool known = name.size() < text.size() && std::ranges::find(kNames, name) != kNames.end();
  return known ? name : std::string_view{};
}

/// A range in multiples of a common power of ten, so that steps of 0.1 are exact.
class DecimalRange {
 public:
  static SweepValue read(const std::vector<std::string_view>& bounds) {
    std::vector<Decimal> numbers;
    int exponent = 0;
    for (const auto bound : bounds) {
      const auto number = parse_decimal(bound);
      if (!number || !number->suffix.empty()) return {.problem = '"' + std::string{bound} + "\" is not a number"};
      exponent = std::min(exponent, number->exponent);
      numbers.push_back(*number);
    }
    constexpr int kMaxDecimals = 18;
    constexpr std::uint64_t kMax = 1'000'000'000'000'000'000;
    std::vector<std::int64_t> whole;
    for (auto number : numbers) {
      number.exponent -= number.digits.empty() ? 0 : exponent;
      const auto value = to_whole(number);
      if (exponent < -kMaxDecimals || value.fit != WholeNumber::Fit::exact || value.magnitude > kMax)
        return {.problem = "the numbers of this range are too large, or too far apart, to count exactly"};
      const auto magnitude = static_cast<std::int64_t>(value.magnitude);
      whole.push_back(value.negative ? -magnitude : magnitude);
    }
    const std::int64_t start = whole.size() > 1 ? whole[0] : 0, stop = whole.size() > 1 ? whole[1] : whole[0];
    std::int64_t one = 1;
    for (int left = exponent; left < 0; ++left) one *= 10;
    const std::int64_t step = whole.size() > 2 ? whole[2] : one;
    return list(start, stop, step, exponent);
  }

 private:
  static SweepValue list(std::int64_t start, std::int64_t stop, std::int64_t step, int exponent) {
    if (step == 0) return {.problem = "a range with step 0 never ends"};
    SweepValue result;
    for (auto value = start; step > 0 ? value < stop : value > stop; value += step) {
      if (result.values.size() == kMaxSweepJobs)
        return {.problem = "this range has more than " + std::to_string(kMaxSweepJobs) + " values"};
      result.values.push_back(written(value, exponent));
    }
    if (result.values.empty()) return {.problem = "this range is empty: its end is excluded"};
    return result;
  }

  static std::string written(std::int64_t value, int exponent) {
    std::string text = std::to_string(value < 0 ? -value : value);
    if (const auto decimals = static_cast<std::size_t>(-exponent); decimals > 0) {
      if (text.size() <= decimals) text.insert(0, decimals + 1 - text.size(), '0');
      text.insert(text.size() - decimals, ".");
      while (text.ends_with('0')) text.pop_back();
      if (text.ends_with('.')) text.pop_back();
    }
    return (value < 0 ? "-" : "") + text;
  }
};

inline SweepValue call_sweep_function(std::string_view name, std::string_view inside) {
  const auto written = std::string{name} + "(...)";
  if (name != "choice" && name != "range")
    return {.problem = written + " is not known here; there are a,b,c and choice(a,b,c) and range(start,stop,step)"};
  const auto split = split_at_commas(inside);
  if (split.open != '\0') return {.problem = "nothing may follow the bracket that closes " + written};
  if (inside.find_first_not_of(' ') == std::string_view::npos) return {.problem = written + " has no values"};
  if (std::ranges::find(split.parts, "") != split.parts.end())
    return {.problem = "a value of " + written + " is empty; an empty text is written ''"};
  if (name == "choice") return {.values{split.parts.begin(), split.parts.end()}};
  if (split.parts.size() > 3) return {.problem = "range takes one to three numbers: range(start,stop,step)"};
  return DecimalRange::read(split.parts);
}

inline SweepValue read_sweep_value(std::string_view text) {
  const auto split = split_at_commas(text);
  const auto alone = trimmed(text);
  const auto name = sweep_function(alone);
  if (split.open != '\0') {
    if (name.empty() && text.find(',') == std::string_view::npos) return {.values = {std::string{text}}};
    return {.problem = std::string{"this "} + split.open + " is never closed"};
  }
  if (split.parts.size() == 1) {
    if (name.empty()) return {.values = {std::string{text}}};
    if (!alone.ends_with(')'))
      return {.problem = "nothing may follow the bracket that closes " + std::string{name} + "(...)"};
    return call_sweep_function(name, alone.substr(name.size() + 1, alone.size() - name.size() - 2));
  }
  for (const auto part : split.parts) {
    if (part.empty()) return {.problem = "a value between the commas is empty; an empty text is written ''"};
    if (const auto function = sweep_function(part); !function.empty())
      return {.problem = std::string{function} + "(...) must stand alone, not among values"};
  }
  return {.values{split.parts.begin(), split.parts.end()}};
}

inline bool looks_like_sweep(std::string_view text) {
  const auto split = split_at_commas(text);
  if (split.open != '\0') return false;
  if (split.parts.size() > 1) return std::ranges::find(split.parts, "") == split.parts.end();
  const auto alone = trimmed(text);
  return alone.ends_with(')') && !sweep_function(alone).empty();
}

}  // namespace ddpxx::detail
