// ddpxx/core/utf8.hpp — text as characters: where it is malformed, and how many characters it has.
#pragma once

#include <cstddef>
#include <string_view>

namespace ddpxx {

/// Bytes of the well-formed UTF-8 character that `text` starts with; 0 when it starts with none.
constexpr std::size_t utf8_length(std::string_view text) {
  const auto byte = [text](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(0), second = byte(1);
  if (text.empty() || (first >= 0x80U && first < 0xC2U) || first > 0xF4U) return 0;
  const std::size_t length = first < 0x80U ? 1 : first < 0xE0U ? 2 : first < 0xF0U ? 3 : 4;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  const bool overlong = (first == 0xE0U && second < 0xA0U) || (first == 0xF0U && second < 0x90U);
  const bool surrogate = first == 0xEDU && second >= 0xA0U;
  const bool beyond = first == 0xF4U && second >= 0x90U;
  return overlong || surrogate || beyond ? 0 : length;
}

/// Byte offset of the first byte that belongs to no well-formed character; `npos` when all is well.
constexpr std::size_t find_malformed_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80U) {
      ++at;
      continue;
    }
    const auto length = utf8_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::string_view::npos;
}

/// Characters in well-formed text; a malformed byte counts as one.
constexpr std::size_t count_characters(std::string_view text) {
  std::size_t count = 0;
  for (; !text.empty(); ++count) {
    const auto length = utf8_length(text);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return count;
}

static_assert(count_characters("a\xC3\xA9z") == 3 && find_malformed_utf8("a\xC3") == 1);

}  // namespace ddpxx
