// ddpxx/data/utf8.hpp — text as Unicode code points and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddpxx {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;
inline constexpr std::size_t kNumCodePoints = 0x110000;

struct CodePoint {
  char32_t value = 0;
  std::size_t num_bytes = 0;
};

/// The number of bytes of a character that begins with the byte `lead`; 1 if no character begins with it.
constexpr std::size_t bytes_of_character(std::uint32_t lead) {
  if (lead < 0xC2 || lead > 0xF4) return 1;
  return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/// The first code point of a text that is not empty. Malformed bytes become one U+FFFD for each longest prefix of a
/// character.
/// Source  The Unicode Standard, tables 3-7 and 3-8; Python's bytes.decode("utf-8", "replace").
constexpr CodePoint decode_utf8(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const auto lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const auto num_bytes = bytes_of_character(lead);
  if (num_bytes == 1) return {kReplacementCharacter, 1};
  // Only the second byte has a range of its own, which excludes surrogates, overlong forms and too large code points.
  const std::uint32_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const std::uint32_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  auto value = lead & (0x7FU >> num_bytes);
  for (std::size_t i = 1; i < num_bytes; ++i) {
    const bool continues = i < text.size() && byte(i) >= (i == 1 ? low : 0x80) && byte(i) <= (i == 1 ? high : 0xBF);
    if (!continues) return {kReplacementCharacter, i};
    value = (value << 6) | (byte(i) & 0x3FU);
  }
  return {value, num_bytes};
}

/// Calls `visit(char32_t)` for each code point.
template <class Visit>
constexpr void for_each_code_point(std::string_view text, Visit&& visit) {
  while (!text.empty()) {
    const auto [value, num_bytes] = decode_utf8(text);
    visit(value);
    text.remove_prefix(num_bytes);
  }
}

/// The text's first `count` code points, or all of it when it has fewer.
constexpr std::string_view first_code_points(std::string_view text, std::int64_t count) {
  auto rest = text;
  for (; count > 0 && !rest.empty(); --count) rest.remove_prefix(decode_utf8(rest).num_bytes);
  return text.substr(0, text.size() - rest.size());
}

/// The text without a last character that is cut in two.
constexpr std::string_view without_torn_end(std::string_view text) {
  for (std::size_t tail = 1; tail <= 3 && tail <= text.size(); ++tail) {
    const auto last = text.substr(text.size() - tail);
    const auto lead = static_cast<unsigned char>(last.front());
    if (lead < 0x80) break;
    if (lead < 0xC0) continue;  // a continuation byte: the first byte of the character comes before it
    const bool torn = bytes_of_character(lead) > tail && decode_utf8(last).num_bytes == tail;
    return torn ? text.substr(0, text.size() - tail) : text;
  }
  return text;
}

/// Appends the code point in UTF-8.
inline void append_utf8(std::string& text, char32_t value) {
  const auto append = [&text](std::uint32_t byte) { text += static_cast<char>(byte); };
  const std::uint32_t code = value;
  if (code < 0x80) {
    append(code);
  } else if (code < 0x800) {
    append(0xC0 | (code >> 6));
    append(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    append(0xE0 | (code >> 12));
    append(0x80 | ((code >> 6) & 0x3F));
    append(0x80 | (code & 0x3F));
  } else {
    append(0xF0 | (code >> 18));
    append(0x80 | ((code >> 12) & 0x3F));
    append(0x80 | ((code >> 6) & 0x3F));
    append(0x80 | (code & 0x3F));
  }
}

static_assert(decode_utf8("\xC3\xA9").value == U'\u00E9' && decode_utf8("\xE2\x82").num_bytes == 2);

}  // namespace ddpxx
