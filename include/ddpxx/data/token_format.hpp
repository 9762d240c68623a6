// ddpxx/data/token_format.hpp — the size of a token id in a file, and files that hold something else than such ids.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include <ddpxx/data/plain_text.hpp>

namespace ddpxx::detail {

inline constexpr std::int64_t kMaxShortVocabulary = 65536;  ///< The ids of a larger one need more than 16 bits.

/// The bytes of each id in files of this many different tokens.
constexpr std::int64_t id_bytes(std::int64_t vocab_size) { return vocab_size <= kMaxShortVocabulary ? 2 : 4; }

/// What to do where a file has ids of the other size than `vocab_size` asks for.
inline std::string other_id_size(std::int64_t vocab_size) {
  return "files of at most " + std::to_string(kMaxShortVocabulary) +
         " different tokens have 16-bit ids, and those of more have 32-bit ids: set vocab_size, which is " +
         std::to_string(vocab_size) + ", to the number of tokens of the tokenizer that wrote the file";
}

/// Whether every second of the numbers of type `Number` has no bits but those of `mask`, as the high halves of numbers
/// of twice the size do, and the other numbers often have more.
template <class Number>
bool looks_twice_as_long(std::span<const std::byte> bytes, Number mask) {
  std::array<std::size_t, 2> larger{};  // numbers with other bits, at even and at odd positions
  const auto count = bytes.size() / sizeof(Number);
  for (std::size_t i = 0; i < count; ++i) {
    Number number = 0;
    std::memcpy(&number, bytes.data() + i * sizeof number, sizeof number);
    if ((number & ~mask) != 0) ++larger[i % 2];
  }
  return std::ranges::min(larger) == 0 && std::ranges::max(larger) > count / 8;
}

/// Whether most of the 32-bit numbers are beyond the ids of any usual tokenizer: two 16-bit ids that are read as one
/// 32-bit number usually are.
inline bool looks_like_16_bits(std::span<const std::byte> bytes, std::int64_t vocab_size) {
  constexpr std::int64_t kUsualTokens = 1 << 18;
  std::size_t beyond = 0;
  const auto count = bytes.size() / sizeof(std::uint32_t);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t number = 0;
    std::memcpy(&number, bytes.data() + i * sizeof number, sizeof number);
    if (number >= std::max(vocab_size, kUsualTokens)) ++beyond;
  }
  return beyond > count / 2;
}

/// What a file that begins with `bytes` holds instead of the ids of `vocab_size` different tokens, and what to do about
/// it; empty if nothing says that it holds no such ids. Few numbers say nothing, unless they begin as a file of NumPy
/// does.
inline std::string not_tokens(std::span<const std::byte> bytes, std::int64_t vocab_size) {
  constexpr std::size_t kFewestBytes = 128;
  constexpr std::size_t kLongestCharacter = 4;
  const bool is_short = id_bytes(vocab_size) == 2;
  const std::string_view text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  const auto to_file = std::string{", by array.astype(numpy."} + (is_short ? "uint16" : "uint32") + ").tofile(...)";
  if (text.starts_with("\x93NUMPY")) return "is a NumPy file with a header: write the tokens alone" + to_file;
  if (bytes.size() < kFewestBytes) return {};
  // Token ids below 256 have a NUL byte. The last character may be cut off where the checked part ends.
  if (find_non_text(text) > text.size() - kLongestCharacter)
    return "holds text: make tokens of it with `ddpxx tokenize`, or train on its characters";
  if (looks_twice_as_long<std::uint32_t>(bytes, 0))
    return "looks like 64-bit numbers, since every second 32-bit number is 0: write the tokens as " +
           std::to_string(8 * id_bytes(vocab_size)) + "-bit numbers" + to_file;
  if (!is_short && looks_like_16_bits(bytes, vocab_size))
    return "looks like 16-bit numbers, since most of its 32-bit numbers are no ids of any tokenizer; " +
           other_id_size(vocab_size);
  // Numbers of 65536 and more have something in their high halves, but with a smaller vocabulary their low halves are
  // found to be beyond it.
  constexpr std::int64_t kLargeVocabulary = 1 << 15;
  if (is_short && looks_twice_as_long<std::uint16_t>(bytes, vocab_size > kLargeVocabulary ? 3 : 0))
    return "looks like 32-bit numbers, since every second 16-bit number is almost 0; " + other_id_size(vocab_size) +
           ", or write ids below 65536 as 16-bit numbers" + to_file;
  return {};
}

}  // namespace ddpxx::detail
