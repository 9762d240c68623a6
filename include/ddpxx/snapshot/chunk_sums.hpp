// ddpxx/snapshot/chunk_sums.hpp — a checksum for each chunk of a file, so that a part of it can be read and proved.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/file.hpp>

namespace ddpxx {

/// Returns the size of the chunks of a file: 1 MiB, doubled until the file has at most about 4096 chunks.
inline std::uint64_t chunk_bytes_for(std::uint64_t file_bytes) {
  std::uint64_t chunk = std::uint64_t{1} << 20;
  while (file_bytes / chunk > 4096) chunk *= 2;
  return chunk;
}

/// Computes the CRC-32C of each chunk of a file whose bytes arrive in pieces.
class ChunkSums {
 public:
  explicit ChunkSums(std::uint64_t chunk_bytes) : chunk_bytes_{chunk_bytes} {}

  void add(Bytes bytes) {
    while (!bytes.empty()) {
      const auto count = std::min<std::uint64_t>(bytes.size(), chunk_bytes_ - filled_);
      sum_ = crc32c(bytes.first(count), sum_);
      filled_ += count;
      bytes = bytes.subspan(count);
      if (filled_ == chunk_bytes_) close();
    }
  }
  /// Returns the checksums of all chunks. The last chunk may be shorter.
  std::vector<std::uint32_t> finish() {
    if (filled_ > 0) close();
    return std::move(sums_);
  }

 private:
  void close() {
    sums_.push_back(sum_);
    sum_ = 0;
    filled_ = 0;
  }

  std::uint64_t chunk_bytes_;
  std::uint64_t filled_ = 0;
  std::uint32_t sum_ = 0;
  std::vector<std::uint32_t> sums_;
};

/// Returns the checksums as text, eight hexadecimal digits each.
inline std::string sums_text(const std::vector<std::uint32_t>& sums) {
  std::string text;
  for (const auto sum : sums)
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[(sum >> shift) & 0xFU];
  return text;
}
/// Reads what `sums_text` returned. Returns none for any other text.
inline std::optional<std::vector<std::uint32_t>> parse_sums(std::string_view text) {
  if (text.size() % 8 != 0) return std::nullopt;
  std::vector<std::uint32_t> sums(text.size() / 8);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = std::string_view{"0123456789abcdef"}.find(text[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    sums[i / 8] = (sums[i / 8] << 4U) | static_cast<std::uint32_t>(digit);
  }
  return sums;
}

}  // namespace ddpxx
