// ddpxx/config/show/schema_value.hpp — the JSON Schema of one value of a config.
//
// Readers of YAML differ in which values are numbers, booleans or texts: `1e3` and `yes` are texts to some. So each
// schema accepts a value in all forms that the parser accepts; a text by a pattern.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <ddpxx/config/number_text.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/value_shape.hpp>
#include <ddpxx/core/describe.hpp>

namespace ddpxx::detail {

/// The schema of a value. It checks the form of texts but not their meaning: a range holds for numbers, not for
/// `25MiB`, and any text with `${...}` is accepted.
inline nlohmann::ordered_json schema_of(const ValueShape& shape, const FieldFacts& facts);

inline constexpr const char* kReference = R"(\$\{)";
inline constexpr const char* kClock = "[0-9]+(?::[0-9]+){2,3}";  // hours, minutes, seconds, perhaps with days in front

/// Regular expressions for the texts that core/units.hpp reads; JavaScript and Python read them alike.
struct NumberPatterns {
  std::string digits = R"([0-9](?:_?[0-9])*)";
  std::string whole = R"((?:0|[1-9](?:_?[0-9])*))";
  std::string number = "(?:" + whole + "(?:\\.(?:" + digits + ")?)?|\\." + digits + ")";
  std::string exponent = "(?:[eE][-+]?" + digits + ")";
  std::string bytes = "(?:(?:[kKmMgGtT][iI]?)?[bB])";
  std::string count = "[kKMGT]";
  std::string units_of_time = "d|h|ms|min|m|s|us|ns";

  /// The pattern of texts such as `1h30m` with any of `units`.
  std::string parts(const std::string& units, const std::string& between) const {
    const auto part = number + exponent + "? *(?:" + units + ')';
    return part + "(?:" + between + part + ")*";
  }

  std::string of_number(const ValueShape& shape, Unit unit) const {
    if (unit == Unit::seconds)
      return "[-+]?(?:" + number + exponent + "? *|" + parts(units_of_time, "\\+?") + '|' + kClock + ')';
    const auto& suffix = unit == Unit::bytes ? bytes : count;
    if (shape.kind == ValueShape::Kind::real) return "[-+]?" + number + exponent + "? *" + suffix + '?';
    // A fraction can be a whole number only with a suffix: 1.5k.
    const auto decimal = "[-+]?(?:" + whole + "(?:\\.0*)? *" + suffix + "?|" + number + "(?:" + exponent + " *" +
                         suffix + "?| *" + suffix + "))";
    return unit == Unit::bytes ? decimal : decimal + "|0[xX][0-9a-fA-F]{1,16}";
  }

  std::string of_duration() const { return "-?\\+?(?:" + parts(units_of_time, "") + '|' + kClock + ')'; }
};

/// The pattern of a text that one of `patterns` matches whole, or that has references.
inline std::string text_pattern(const std::string& patterns) { return "^(?:" + patterns + ")$|" + kReference; }

inline nlohmann::ordered_json json_number(long double value) {
  const bool is_whole = value == std::floor(value) && std::abs(value) < 0x1p64L;
  if (is_whole && value >= 0) return static_cast<std::uint64_t>(value);
  if (is_whole && value >= -0x1p63L) return static_cast<std::int64_t>(value);
  return static_cast<double>(value);
}

/// Adds the lower (`is_low`) or upper bound of a range, limited by the range of the type; if infinity is allowed, that
/// side has no bound.
inline void add_bound(nlohmann::ordered_json& schema, const std::optional<Bound>& bound, long double limit,
                      bool is_low) {
  const char* const inclusive = is_low ? "minimum" : "maximum";
  const char* const exclusive = is_low ? "exclusiveMinimum" : "exclusiveMaximum";
  const bool is_tighter = bound && (is_low ? bound->value >= limit : bound->value <= limit);
  if (bound && std::isinf(bound->value) && !bound->open) return;
  if (is_tighter)
    schema[bound->open ? exclusive : inclusive] = json_number(bound->value);
  else
    schema[inclusive] = json_number(limit);
}

inline nlohmann::ordered_json number_schema(const ValueShape& shape, const FieldFacts& facts) {
  constexpr long double kMax = std::numeric_limits<double>::max();
  const bool is_real = shape.kind == ValueShape::Kind::real;
  nlohmann::ordered_json schema{{"type", {is_real ? "number" : "integer", "string"}}};
  const auto& low = facts.range.low;
  const auto& high = facts.range.high;
  add_bound(schema, low, is_real ? -kMax : shape.lowest, true);
  add_bound(schema, high, is_real ? kMax : shape.highest, false);
  auto pattern = NumberPatterns{}.of_number(shape, facts.unit);
  if (is_real && high && std::isinf(high->value) && !high->open) pattern += R"(|\+?\.?(?:inf|Inf|INF))";
  if (is_real && low && std::isinf(low->value) && !low->open) pattern += R"(|-\.?(?:inf|Inf|INF))";
  schema["pattern"] = text_pattern(pattern);
  return schema;
}

/// Adds a name in all forms that readers of YAML make of it: `on` is true to some, `1` is a number to all.
inline void add_name(nlohmann::ordered_json& names, const std::string& name) {
  names.push_back(name);
  const auto word = nlohmann::ordered_json::parse(name, nullptr, false);
  if (word.is_number())
    names.push_back(word);
  else if (const auto truth = read_bool(name); truth && names.end() == std::find(names.begin(), names.end(), *truth))
    names.push_back(*truth);
}

inline nlohmann::ordered_json names_schema(const ValueShape& shape) {
  auto names = nlohmann::ordered_json::array();
  for (const auto& name : shape.names) add_name(names, name);
  if (shape.may_be_null) names.push_back(nullptr);
  const nlohmann::ordered_json listed{{"enum", std::move(names)}};
  return {{"anyOf", {listed, {{"type", "string"}, {"pattern", kReference}}}}};
}

inline nlohmann::ordered_json list_schema(const ValueShape& shape, const FieldFacts& facts) {
  nlohmann::ordered_json schema{{"type", {"array", "string"}}, {"items", schema_of(shape.item.front(), facts)}};
  if (shape.length != 0) {
    schema["minItems"] = shape.length;
    schema["maxItems"] = shape.length;
  }
  schema["pattern"] = kReference;
  return schema;
}

inline nlohmann::ordered_json schema_without_null(const ValueShape& shape, const FieldFacts& facts) {
  using Json = nlohmann::ordered_json;
  switch (shape.kind) {
    case ValueShape::Kind::truth:
      return {{"type", {"boolean", "integer", "string"}},
              {"minimum", 0},
              {"maximum", 1},
              {"pattern", text_pattern("[tT][rR][uU][eE]|[fF][aA][lL][sS][eE]|[yY][eE][sS]|[nN][oO]|[oO][nN]|"
                                       "[oO][fF][fF]|1|0")}};
    case ValueShape::Kind::whole:
    case ValueShape::Kind::real:
      return number_schema(shape, facts);
    case ValueShape::Kind::duration:
      return {{"type", Json::array({"string"})}, {"pattern", text_pattern(NumberPatterns{}.of_duration())}};
    case ValueShape::Kind::list:
      return list_schema(shape, facts);
    case ValueShape::Kind::map:
      return {{"type", Json::array({"object"})}, {"additionalProperties", schema_of(shape.item.front(), facts)}};
    case ValueShape::Kind::text:
    case ValueShape::Kind::name:
    case ValueShape::Kind::path:
      return {{"type", {"string", "number", "boolean"}}};  // 12 and true are texts if the field is a text
  }
  return {};
}

inline nlohmann::ordered_json schema_of(const ValueShape& shape, const FieldFacts& facts) {
  if (!shape.names.empty()) return names_schema(shape);
  auto schema = schema_without_null(shape, facts);
  if (shape.may_be_null) schema["type"].push_back("null");
  return schema;
}

}  // namespace ddpxx::detail
