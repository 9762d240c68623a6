// ddpxx/data/token_file.hpp — the token ids of one file.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/mapped_file.hpp>
#include <ddpxx/data/token_format.hpp>

namespace ddpxx {

namespace detail {

/// The first numbers of llm.c's header, which has 256 of them in front of the ids.
/// Source  karpathy/llm.c, dev/data/data_common.py.
struct LlmcHeader {
  static constexpr std::int64_t kBytes = 256 * sizeof(std::int32_t);

  std::int32_t magic = 0;
  std::int32_t version = 0;
  std::int32_t num_tokens = 0;

  /// The bytes of an id; 0 where no header begins with `magic`.
  std::int64_t id_bytes() const noexcept { return magic == 20240520 ? 2 : magic == 20240801 ? 4 : 0; }
  bool has_known_version() const noexcept { return version == (id_bytes() == 2 ? 1 : 7); }
};

/// Copies `count` ids of type `Id`, and returns the largest.
template <class Id>
std::int64_t copy_ids(const std::byte* from, std::int64_t count, std::int64_t* ids) {
  // The compiler uses vector instructions for loops of a length that it knows.
  constexpr std::int64_t kAtOnce = 32, kIdBytes = sizeof(Id);
  std::array<Id, kAtOnce> some{}, largest_of{};
  std::int64_t done = 0;
  for (; done + kAtOnce <= count; done += kAtOnce) {
    std::memcpy(some.data(), from + done * kIdBytes, sizeof some);
    for (std::size_t i = 0; i < some.size(); ++i) ids[done + static_cast<std::int64_t>(i)] = some[i];
    for (std::size_t i = 0; i < some.size(); ++i) largest_of[i] = std::max(largest_of[i], some[i]);
  }
  std::int64_t largest = done == 0 ? 0 : *std::max_element(largest_of.begin(), largest_of.end());
  for (; done < count; ++done) {
    Id id = 0;
    std::memcpy(&id, from + done * kIdBytes, sizeof id);
    ids[done] = id;
    largest = std::max<std::int64_t>(largest, id);
  }
  return largest;
}

}  // namespace detail

/// The ids of a file: unsigned numbers in little-endian order, of 16 bits, or of 32 bits where vocab_size is above
/// 65536. The file holds nothing else, but for llm.c's header, which is skipped. It is mapped, not read: the ranks of a
/// machine share its pages, and it may be larger than the memory.
/// Errors  `data` if the file cannot be read, ends within an id, has a header that contradicts vocab_size or the file's
///         length, holds text, numbers of another size or a NumPy header, or has an id of vocab_size or
///         more. Ids in the middle of the file are checked when they are copied.
/// Source  nanoGPT's data/openwebtext/prepare.py.
class TokenFile {
 public:
  TokenFile(std::string path, std::int64_t vocab_size)
      : path_{std::move(path)}, vocab_size_{vocab_size}, file_{path_, Errc::data}, header_bytes_{read_header()} {
    check_format();
  }

  std::int64_t size() const noexcept { return std::ssize(tokens()) / id_bytes(); }

  /// Copies `count` ids from id `first` on, and checks them.
  /// Errors  `data` for an id that is not below vocab_size.
  void copy(std::int64_t first, std::int64_t count, std::int64_t* ids) const {
    const auto* from = tokens().data() + first * id_bytes();
    const auto largest = id_bytes() == 2 ? detail::copy_ids<std::uint16_t>(from, count, ids)
                                         : detail::copy_ids<std::uint32_t>(from, count, ids);
    if (largest < vocab_size_) return;
    const auto wrong = std::find(ids, ids + count, largest) - ids;
    throw Error{Errc::data, "token " + std::to_string(first + wrong) + " of " + path_ + " is " +
                                std::to_string(largest) + ", and vocab_size=" + std::to_string(vocab_size_) +
                                " has the ids below that: set the number of tokens of the tokenizer that wrote the "
                                "file, which is read as " +
                                bits() + " numbers"};
  }

  /// Checks the first and the last 1 MiB of the ids, and returns `checksum` continued by these bytes.
  std::uint32_t check_ends(std::uint32_t checksum) const {
    const auto count = std::min(size(), kCheckedBytes / id_bytes());
    std::vector<std::int64_t> ids(static_cast<std::size_t>(count));
    copy(0, count, ids.data());
    copy(size() - count, count, ids.data());
    const auto part = static_cast<std::size_t>(count * id_bytes());
    return crc32c(tokens().last(part), crc32c(tokens().first(part), checksum));
  }

 private:
  static constexpr std::int64_t kCheckedBytes = 1 << 20;
  static_assert(std::endian::native == std::endian::little, "the file's numbers are in little-endian order");

  std::int64_t id_bytes() const noexcept { return detail::id_bytes(vocab_size_); }
  std::string bits() const { return std::to_string(8 * id_bytes()) + "-bit"; }
  std::span<const std::byte> tokens() const noexcept { return std::as_bytes(file_.bytes()).subspan(header_bytes_); }

  /// Returns the bytes of the file's header, 0 if it has none.
  std::size_t read_header() const {
    detail::LlmcHeader header;
    const auto bytes = std::ssize(file_.bytes());
    if (bytes == 0) return 0;
    std::memcpy(&header, file_.bytes().data(), std::min(sizeof header, file_.bytes().size()));
    if (header.id_bytes() == 0) return 0;
    const auto begin = path_ + " begins with a header of llm.c ";
    if (bytes < header.kBytes)
      throw Error{Errc::data, begin + "that is cut off: it has " + std::to_string(bytes) + " bytes of " +
                                  std::to_string(header.kBytes) + "; copy the file again"};
    if (header.id_bytes() != id_bytes())
      throw Error{Errc::data, begin + "for " + std::to_string(8 * header.id_bytes()) + "-bit ids; " +
                                  detail::other_id_size(vocab_size_)};
    if (!header.has_known_version())
      throw Error{Errc::data, begin + "of version " + std::to_string(header.version) +
                                  ", which is not known: write the tokens alone, without a header"};
    if (header.kBytes + header.num_tokens * id_bytes() != bytes)
      throw Error{Errc::data, begin + "for " + std::to_string(header.num_tokens) + " tokens of " +
                                  std::to_string(id_bytes()) + " bytes, and " + std::to_string(bytes - header.kBytes) +
                                  " bytes follow: the file was cut off, or has the header of another file; copy the "
                                  "file again"};
    return header.kBytes;
  }

  void check_format() const {
    const auto begin = tokens().first(std::min<std::size_t>(tokens().size(), kCheckedBytes));
    if (const auto why = detail::not_tokens(begin, vocab_size_); !why.empty())
      throw Error{Errc::data, path_ + " is not a file of " + bits() + " tokens: it " + why};
    if (std::ssize(tokens()) % id_bytes() != 0)
      throw Error{Errc::data, path_ + " has " + std::to_string(tokens().size()) + " bytes, which is no multiple of " +
                                  std::to_string(id_bytes()) + ": it is not a file of " + bits() +
                                  " tokens, or it was cut off; " + detail::other_id_size(vocab_size_)};
  }

  std::string path_;
  std::int64_t vocab_size_;
  MappedFile file_;
  std::size_t header_bytes_;
};

}  // namespace ddpxx
