// ddpxx/storage/s3/text.hpp — percent-encoding for S3's requests, and as much XML as its replies need.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ddpxx::detail {

/// Encodes every character but letters, digits and -_.~ as %XX. In a path the '/' stays as well.
inline std::string percent_encode(std::string_view text, std::string_view also_plain = "") {
  static constexpr std::string_view kPlain = "-_.~";
  static constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       kPlain.find(c) != std::string_view::npos || also_plain.find(c) != std::string_view::npos;
    const auto byte = static_cast<unsigned char>(c);
    if (plain)
      result += c;
    else
      result += {'%', kHex[byte >> 4U], kHex[byte & 0xFU]};
  }
  return result;
}

inline std::string percent_encode_path(std::string_view path) { return percent_encode(path, "/"); }

/// Decodes the keys of a listing with encoding-type=url, where '+' is a space.
inline std::string percent_decode(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16).ptr == text.data() + i + 3) {
      result += static_cast<char>(byte);
      i += 2;
    } else {
      result += text[i] == '+' ? ' ' : text[i];
    }
  }
  return result;
}

/// Returns the text between <tag> and </tag> of each such element, in order. Servers write these replies themselves and
/// escape every '<' of a name, so that no element is hidden inside a text.
inline std::vector<std::string_view> xml_elements(std::string_view xml, const std::string& tag) {
  const auto open = '<' + tag + '>';
  const auto close = "</" + tag + '>';
  std::vector<std::string_view> found;
  for (auto begin = xml.find(open); begin != std::string_view::npos; begin = xml.find(open, begin)) {
    begin += open.size();
    const auto end = xml.find(close, begin);
    if (end == std::string_view::npos) break;
    found.push_back(xml.substr(begin, end - begin));
    begin = end;
  }
  return found;
}

/// Replaces &amp; and the other entities by their characters.
inline std::string xml_unescape(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, char>, 5> kNames{
      {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}}};
  const auto resolve = [](std::string_view name) -> std::optional<char> {
    for (const auto& [known, character] : kNames)
      if (name == known) return character;
    if (!name.starts_with('#')) return std::nullopt;
    name.remove_prefix(1);
    const int base = name.starts_with('x') ? 16 : 10;
    if (base == 16) name.remove_prefix(1);
    unsigned code = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), code, base).ptr != name.data() + name.size() ||
        code > 0x7F)
      return std::nullopt;
    return static_cast<char>(code);
  };
  std::string result;
  while (!text.empty()) {
    const auto semicolon = text[0] == '&' ? text.find(';') : std::string_view::npos;
    if (semicolon != std::string_view::npos) {
      if (const auto character = resolve(text.substr(1, semicolon - 1))) {
        result += *character;
        text.remove_prefix(semicolon + 1);
        continue;
      }
    }
    result += text[0];
    text.remove_prefix(1);
  }
  return result;
}

/// Returns the text of the first such element, or an empty text.
inline std::string xml_text(std::string_view xml, const std::string& tag) {
  const auto found = xml_elements(xml, tag);
  return found.empty() ? std::string{} : xml_unescape(found.front());
}

/// True if the keys in a page of a listing are percent-encoded. A server may ignore the request for it.
inline bool has_encoded_keys(std::string_view page) { return xml_text(page, "EncodingType") == "url"; }

/// Returns a key of such a page, or of an entry in it.
inline std::string listed_key(std::string_view xml, const std::string& tag, bool is_encoded) {
  auto text = xml_text(xml, tag);
  return is_encoded ? percent_decode(text) : text;
}

}  // namespace ddpxx::detail
