// tests/config/entries_text.hpp — the entries of a source as one line of text.
#pragma once

#include <string>

#include <ddpxx/config/text/source.hpp>

namespace ddpxx {

/// `path@line:column=text@line:column` for each entry; quoted texts are in quotes.
inline std::string entries_text(const detail::SourceEntries& entries) {
  const auto spot = [](const Position& place) {
    return '@' + std::to_string(place.line) + ':' + std::to_string(place.column);
  };
  const auto value_text = [&](const RawValue& value, const auto& self) -> std::string {
    std::string text = value.quoted ? '"' + value.text + '"' : value.text;
    if (value.kind == RawValue::Kind::none) return "none";
    if (value.kind == RawValue::Kind::group) return "{}";
    if (value.kind == RawValue::Kind::text) return text + spot(value.place);
    for (const auto& item : value.items) text += (text.empty() ? "" : ",") + self(item, self);
    return '[' + text + ']';
  };
  std::string text;
  for (const auto& entry : entries.list)
    text +=
        (text.empty() ? "" : " ") + entry.path + spot(entry.keys.back()) + '=' + value_text(entry.value, value_text);
  return text;
}

}  // namespace ddpxx
