// tests/config/told.hpp — what a source says, in one line.
#pragma once

#include <string>

#include <ddpxx/config/text/source.hpp>

namespace ddpxx {

/// `path@line:column=text@line:column` of all that was said; texts in quotes where they were.
inline std::string told(const Said& said) {
  const auto spot = [](const Position& place) {
    return '@' + std::to_string(place.line) + ':' + std::to_string(place.column);
  };
  const auto value_text = [&](const GivenValue& value, const auto& self) -> std::string {
    std::string text = value.quoted ? '"' + value.text + '"' : value.text;
    if (value.kind == GivenValue::Kind::none) return "none";
    if (value.kind == GivenValue::Kind::group) return "{}";
    if (value.kind == GivenValue::Kind::text) return text + spot(value.place);
    for (const auto& item : value.items) text += (text.empty() ? "" : ",") + self(item, self);
    return '[' + text + ']';
  };
  std::string text;
  for (const auto& given : said.given)
    text +=
        (text.empty() ? "" : " ") + given.path + spot(given.keys.back()) + '=' + value_text(given.value, value_text);
  return text;
}

}  // namespace ddpxx
