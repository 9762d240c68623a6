// ddpxx/data/token_format.hpp — recognizes files that hold something else than 16-bit token ids.
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

/// Whether every second of the 16-bit numbers has no bits but those of `mask`, as the high halves of 32-bit numbers do,
/// and the other numbers often have more.
inline bool looks_like_32_bits(std::span<const std::byte> bytes, unsigned mask) {
  std::array<std::size_t, 2> larger{};  // numbers with other bits, at even and at odd positions
  const auto count = bytes.size() / 2;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t number = 0;
    std::memcpy(&number, bytes.data() + 2 * i, sizeof number);
    if ((number & ~mask) != 0) ++larger[i % 2];
  }
  return std::ranges::min(larger) == 0 && std::ranges::max(larger) > count / 8;
}

/// What a file that begins with `bytes` holds instead of 16-bit token ids, and what to do about it; empty if nothing
/// says that it holds no such ids. Few numbers say nothing, unless they begin as a file of NumPy does.
inline std::string not_tokens(std::span<const std::byte> bytes, std::int64_t vocab_size) {
  constexpr std::size_t kFewestBytes = 128;
  constexpr std::size_t kLongestCharacter = 4;
  const std::string_view text{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  if (text.starts_with("\x93NUMPY"))
    return "is a NumPy file with a header: write the tokens alone, by array.astype(numpy.uint16).tofile(...)";
  if (bytes.size() < kFewestBytes) return {};
  // Token ids below 256 have a NUL byte. The last character may be cut off where the checked part ends.
  if (find_non_text(text) > text.size() - kLongestCharacter)
    return "holds text: make tokens of it with `ddpxx tokenize`, or train on its characters";
  // Numbers of 65536 and more have something in their high halves, but with a smaller vocabulary their low halves are
  // found to be beyond it.
  constexpr std::int64_t kLargeVocabulary = 1 << 15;
  if (looks_like_32_bits(bytes, vocab_size > kLargeVocabulary ? 3 : 0))
    return "looks like 32-bit numbers, since every second 16-bit number is almost 0: write the tokens as 16-bit "
           "numbers, by array.astype(numpy.uint16).tofile(...)";
  return {};
}

}  // namespace ddpxx::detail
