// ddpxx/snapshot/piece_reader.hpp — reads ranges of bytes from a snapshot's files, and checks every byte that it uses.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx::detail {

/// The bytes [begin, end) of a file, and the memory that they are copied to.
struct WantedBytes {
  std::size_t file = 0;  ///< Index into Manifest::files.
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::byte* to = nullptr;
};

/// Reads the wanted ranges in pieces, each of which is some consecutive chunks of a file: one piece is checked while
/// the next ones are being read. ShardReader says what is read and checked.
class PieceReader {
 public:
  /// Reads the files in `folder` of the storage, about `piece_bytes` at a time.
  PieceReader(Storage& storage, std::string folder, const Manifest& manifest, std::uint64_t piece_bytes)
      : storage_{&storage}, folder_{std::move(folder)}, manifest_{&manifest}, piece_bytes_{piece_bytes} {}

  /// Copies the wanted ranges, which it sorts, to their memory. Returns none, or a text that names the damaged file.
  /// Errors  `storage` if the storage does not answer.
  std::optional<std::string> read(std::vector<WantedBytes>& wanted) {
    const auto pieces = pieces_of(wanted);
    try {
      for (std::size_t i = 0, begun = 0; i < pieces.size(); ++i) {
        for (; begun < std::min(pieces.size(), i + kReadsAhead); ++begun) begin(pieces[begun], arrival_of(begun));
        arrival_of(i).read.get();
        if (auto damage = take(pieces[i], {arrival_of(i).buffer.get(), pieces[i].bytes()})) return damage;
      }
    } catch (const UnreadableObject& error) {
      unreadable_ = error.range();
      return error.what();
    }
    return std::nullopt;
  }

  /// The bytes that the storage could not read, if that was the damage.
  const std::optional<StoredRange>& unreadable() const noexcept { return unreadable_; }

 private:
  /// Consecutive chunks of a file that are read at once, and the ranges that are wanted from them.
  struct Piece {
    const ShardFile* file = nullptr;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::span<const WantedBytes> wanted;

    std::uint64_t bytes() const { return end - begin; }
  };
  /// The memory that a piece is read into.
  struct Arrival {
    std::unique_ptr<std::byte[]> buffer;
    std::uint64_t size = 0;
    std::future<void> read = {};  ///< Its destructor waits for the thread.
  };

  static constexpr std::size_t kReadsAhead = 4;  // one piece is checked while three are read

  std::vector<Piece> pieces_of(std::vector<WantedBytes>& wanted) const {
    std::sort(wanted.begin(), wanted.end(), [](const WantedBytes& a, const WantedBytes& b) {
      return std::tie(a.file, a.begin) < std::tie(b.file, b.begin);
    });
    std::vector<Piece> pieces;
    for (std::size_t first = 0; first < wanted.size();) {
      const auto& file = manifest_->files[wanted[first].file];
      const auto chunk = file.chunk_bytes;
      // Take chunks as long as there is no gap, with all ranges that begin in them.
      const auto begin = wanted[first].begin / chunk * chunk;
      auto end = begin;
      auto last = first;
      for (; last < wanted.size() && wanted[last].file == wanted[first].file; ++last) {
        if (wanted[last].begin > end && wanted[last].begin / chunk * chunk > end) break;
        end = std::max(end, std::min(file.bytes, (wanted[last].end + chunk - 1) / chunk * chunk));
      }
      const auto step = std::max(chunk, piece_bytes_ / chunk * chunk);
      const auto of_the_run = std::span<const WantedBytes>{wanted}.subspan(first, last - first);
      for (auto at = begin; at < end; at += step) pieces.push_back({&file, at, std::min(end, at + step), of_the_run});
      first = last;
    }
    return pieces;
  }

  Arrival& arrival_of(std::size_t piece) { return arrivals_[piece % kReadsAhead]; }

  /// Starts to read a piece. If the system has no thread left, the piece is read when it is needed.
  void begin(const Piece& piece, Arrival& arrival) const {
    if (arrival.read.valid()) arrival.read.wait();  // for a read that an error left unused
    if (arrival.size < piece.bytes()) {
      arrival.buffer = std::make_unique_for_overwrite<std::byte[]>(piece.bytes());
      arrival.size = piece.bytes();
    }
    const auto read = [this, piece, to = arrival.buffer.get()] {
      storage_->read(folder_ + piece.file->name, piece.begin, {to, piece.bytes()});
    };
    try {
      arrival.read = std::async(std::launch::async, read);
    } catch (const std::system_error&) {
      arrival.read = std::async(std::launch::deferred, read);
    }
  }

  std::optional<std::string> take(const Piece& piece, std::span<std::byte> bytes) const {
    const auto chunk = piece.file->chunk_bytes;
    for (std::uint64_t i = 0; i < bytes.size(); i += chunk)
      if (auto damage = check(*piece.file, piece.begin + i, bytes.subspan(i, std::min(chunk, bytes.size() - i))))
        return damage;
    for (const auto& each : piece.wanted) {
      const auto from = std::max(each.begin, piece.begin), to = std::min(each.end, piece.end);
      if (from < to && each.to != nullptr)
        std::memcpy(each.to + (from - each.begin), bytes.data() + (from - piece.begin), to - from);
    }
    return std::nullopt;
  }

  /// Checks one chunk, which was read from the byte `at` of the file, and reads it once more if its checksum is wrong.
  /// Returns the text of the damage, or none.
  std::optional<std::string> check(const ShardFile& file, std::uint64_t at, std::span<std::byte> bytes) const {
    const auto is_right = [&] { return crc32c(bytes) == file.sums[at / file.chunk_bytes]; };
    if (is_right()) return std::nullopt;
    storage_->read(folder_ + file.name, at, bytes);
    if (is_right()) return std::nullopt;
    return storage_->full_name(folder_ + file.name) + " is damaged between its bytes " + std::to_string(at) + " and " +
           std::to_string(at + bytes.size());
  }

  Storage* storage_;
  std::string folder_;
  const Manifest* manifest_;
  std::uint64_t piece_bytes_;
  std::optional<StoredRange> unreadable_;
  std::array<Arrival, kReadsAhead> arrivals_;
};

}  // namespace ddpxx::detail
