// ddpxx/data/bpe/byte_characters.hpp — the characters that stand for bytes in the files of byte-level tokenizers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <ddpxx/data/utf8.hpp>

namespace ddpxx::detail {

/// The bytes that stand for themselves: the printable characters of Latin-1.
constexpr bool is_own_character(std::size_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/// The character of each byte. The bytes that do not stand for themselves have the characters from U+0100 on.
/// Source  GPT-2's encoder.py, bytes_to_unicode().
constexpr std::array<char32_t, 256> characters_of_bytes() {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (std::size_t byte = 0; byte < characters.size(); ++byte)
    characters[byte] = is_own_character(byte) ? static_cast<char32_t>(byte) : next++;
  return characters;
}

/// The byte of each character from U+0000 on; -1 for characters that stand for no byte.
constexpr auto bytes_of_characters() {
  constexpr auto kCharacters = characters_of_bytes();
  constexpr std::size_t kEnd = kCharacters[0xAD] + 1;  // the last byte that does not stand for itself
  std::array<std::int16_t, kEnd> bytes{};
  bytes.fill(-1);
  for (std::size_t byte = 0; byte < kCharacters.size(); ++byte)
    bytes[kCharacters[byte]] = static_cast<std::int16_t>(byte);
  return bytes;
}

/// The bytes of a token that a file writes as characters; none if one of the characters stands for no byte.
inline std::optional<std::string> bytes_of_token(std::string_view written) {
  static constexpr auto kBytes = bytes_of_characters();
  std::string bytes;
  for (; !written.empty();) {
    const auto [character, num_bytes] = decode_utf8(written);
    if (character >= kBytes.size() || kBytes[character] < 0) return std::nullopt;
    bytes += static_cast<char>(kBytes[character]);
    written.remove_prefix(num_bytes);
  }
  return bytes;
}

static_assert(characters_of_bytes()[' '] == U'\u0120' && bytes_of_characters()[U'\u010A'] == '\n');

}  // namespace ddpxx::detail
