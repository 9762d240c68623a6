// ddpxx/config/text_inl.hpp — the functions of text.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/config/raw_value.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/text/synonyms.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/units.hpp>
#include <ddpxx/core/utf8.hpp>

namespace ddpxx {

DDPXX_INLINE std::string shown(std::string_view text, std::size_t most_characters) {
  std::size_t end = 0;
  for (std::size_t count = 0; end < text.size() && count < most_characters; ++count)
    end += std::max<std::size_t>(1, utf8_length(text.substr(end)));
  return '"' + harmless(text.substr(0, end)) + (end < text.size() ? "..." : "") + '"';
}

DDPXX_INLINE std::optional<bool> read_bool(std::string_view text) {
  const auto word = detail::lower(text);
  if (word == "true" || word == "yes" || word == "on" || word == "1") return true;
  if (word == "false" || word == "no" || word == "off" || word == "0") return false;
  return std::nullopt;
}

DDPXX_INLINE bool is_null(const RawValue& value) {
  const bool word = value.text == "null" || value.text == "Null" || value.text == "NULL" || value.text == "~";
  return value.kind == RawValue::Kind::none || (value.kind == RawValue::Kind::text && !value.quoted && word);
}

DDPXX_INLINE std::optional<std::string> not_a_text(const RawValue& value, const std::string& wanted) {
  if (value.kind == RawValue::Kind::list) return "is a list where " + wanted + " is expected";
  if (value.kind == RawValue::Kind::group) return "is a group where " + wanted + " is expected";
  if (is_null(value)) return "has no value where " + wanted + " is expected";
  return std::nullopt;
}

DDPXX_INLINE std::string not_a_list(const RawValue& value) {
  if (value.kind == RawValue::Kind::text && !is_null(value))
    return shown(value.text) + " is not a list; write [a, b, c]";
  return "has no value where a list is expected; write [] for an empty one";
}

DDPXX_INLINE std::string one_of(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return text;
}

DDPXX_INLINE std::vector<std::string> choices_of(const FieldFacts& facts) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < facts.choices.count; ++i) names.emplace_back(facts.choices.names[i]);
  return names;
}

DDPXX_INLINE std::string not_a_choice(const std::string& text, const std::vector<std::string>& names) {
  const auto meant = detail::meant_value(text, names);
  return shown(text) + " is not known (allowed: " + one_of(names) + ')' +
         (meant ? "; did you mean " + *meant + '?' : "");
}

DDPXX_INLINE std::string yaml_quoted(std::string_view text) {
  static constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string result = "\"";
  while (!text.empty()) {
    const auto length = utf8_length(text);
    const auto character = text.substr(0, length == 0 ? 1 : length);
    const auto first = static_cast<unsigned char>(character[0]);
    text.remove_prefix(character.size());
    if (length == 0) {
      result += "\\uFFFD";
    } else if (character == "\"" || character == "\\") {
      result += '\\';
      result += character;
    } else if (character == "\n") {
      result += "\\n";
    } else if (character == "\t") {
      result += "\\t";
    } else if (length == 1 && (first < 0x20 || first == 0x7F)) {
      result += {'\\', 'x', kHex[first >> 4U], kHex[first & 0xFU]};
    } else if (first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0) {  // C1 controls, U+0085 breaks lines
      const auto code = static_cast<unsigned char>(character[1]);
      result += {'\\', 'x', kHex[code >> 4U], kHex[code & 0xFU]};
    } else if (character == "\xE2\x80\xA8" || character == "\xE2\x80\xA9") {
      result += character.back() == '\xA8' ? "\\u2028" : "\\u2029";
    } else if (character == "\xEF\xBB\xBF") {
      result += "\\uFEFF";
    } else if (character == "\xEF\xBF\xBE" || character == "\xEF\xBF\xBF") {
      result += character.back() == '\xBE' ? "\\uFFFE" : "\\uFFFF";
    } else {
      result += character;
    }
  }
  return result + '"';
}

}  // namespace ddpxx
