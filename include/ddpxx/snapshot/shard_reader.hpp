// ddpxx/snapshot/shard_reader.hpp — reads ranges of tensors from a snapshot's files, and checks every byte that it
// uses.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/state_slice.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

namespace detail {
class PieceReader;
}  // namespace detail

/// Limits of the memory that reading takes besides the slices.
struct ReadSizes {
  std::uint64_t piece = std::uint64_t{16} << 20;     ///< Bytes of one read. Four reads are held at a time.
  std::uint64_t on_host = std::uint64_t{256} << 20;  ///< Bytes held on the CPU while they are copied to another device.
};

/// Reads the chunks that hold the wanted ranges, and no others. The bytes of a chunk are used only after its checksum
/// was found right; meanwhile the next chunks are being read. A chunk with a wrong checksum is read once more, since it
/// may have been damaged on the way.
class ShardReader {
 public:
  /// Reads the files in `folder` of the storage.
  ShardReader(Storage& storage, std::string folder, const Manifest& manifest, ReadSizes sizes = {});
  ShardReader(const ShardReader&) = delete;
  ShardReader& operator=(const ShardReader&) = delete;
  ~ShardReader();

  /// Fills the slices. The manifest must have the tensor of each slice, in the type of the slice. Returns none, or a
  /// text that names the damaged file; then some of the slices are overwritten. A file that cannot be read counts as
  /// damaged.
  /// Errors  `storage` if the storage does not answer.
  std::optional<std::string> read(std::span<const StateSlice> slices);

  /// The bytes that the storage could not read, if that was the damage.
  const std::optional<StoredRange>& unreadable() const noexcept;

  /// Reads and checks every byte of every file. Returns a text that names the first damage, or none.
  std::optional<std::string> verify();

 private:
  std::optional<std::string> read_by_way_of_host(std::span<const StateSlice> batch);

  const Manifest* manifest_;
  std::uint64_t bytes_on_host_;
  std::unique_ptr<detail::PieceReader> pieces_;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/snapshot/shard_reader_inl.hpp>
#endif
