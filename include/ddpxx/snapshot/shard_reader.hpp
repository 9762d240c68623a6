// ddpxx/snapshot/shard_reader.hpp — reads ranges of tensors from a snapshot's files, and checks every byte that it
// uses.
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

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/state_slice.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

/// The bytes [begin, end) of a file, and the memory that they are copied to.
struct WantedBytes {
  std::size_t file = 0;  ///< Index into Manifest::files.
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::byte* to = nullptr;
};

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
  ShardReader(Storage& storage, std::string folder, const Manifest& manifest, ReadSizes sizes = {})
      : storage_{&storage}, folder_{std::move(folder)}, manifest_{&manifest}, sizes_{sizes} {}

  /// Fills the slices. The manifest must have the tensor of each slice, in the type of the slice. Returns none, or a
  /// text that names the damaged file; then some of the slices are overwritten. A file that cannot be read counts as
  /// damaged.
  /// Errors  `storage` if the storage does not answer.
  std::optional<std::string> read(std::span<const StateSlice> slices) {
    const c10::NoGradGuard no_grad;
    std::vector<WantedBytes> wanted;
    std::vector<StateSlice> elsewhere;
    for (const auto& slice : slices)
      if (is_writable_here(slice.values))
        add_parts(slice, slice.values, wanted);
      else
        elsewhere.push_back(slice);
    if (auto damage = read_bytes(wanted)) return damage;
    for (const auto& batch : in_batches(elsewhere))
      if (auto damage = read_by_way_of_host(batch)) return damage;
    return std::nullopt;
  }

  /// The bytes that the storage could not read, if that was the damage.
  const std::optional<StoredRange>& unreadable() const noexcept { return unreadable_; }

  /// Reads and checks every byte of every file. Returns a text that names the first damage, or none.
  std::optional<std::string> verify() {
    std::vector<WantedBytes> all;
    for (std::size_t i = 0; i < manifest_->files.size(); ++i) all.push_back({i, 0, manifest_->files[i].bytes, nullptr});
    return read_bytes(all);
  }

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

  static bool is_writable_here(const at::Tensor& values) { return values.is_cpu() && values.is_contiguous(); }

  void add_parts(const StateSlice& slice, const at::Tensor& values, std::vector<WantedBytes>& wanted) const {
    const auto element = static_cast<std::int64_t>(values.element_size());
    auto* const to = static_cast<std::byte*>(values.mutable_data_ptr());
    for (const auto& part : manifest_->tensors.at(slice.name).parts) {
      const auto begin = std::max(part.begin, slice.begin), end = std::min(part.end, slice.end());
      if (begin >= end) continue;
      const auto offset = part.offset + static_cast<std::uint64_t>((begin - part.begin) * element);
      wanted.push_back({part.file, offset, offset + static_cast<std::uint64_t>((end - begin) * element),
                        to + (begin - slice.begin) * element});
    }
  }

  /// Cuts the slices, in their order, into batches of at most `on_host` bytes.
  std::vector<std::vector<StateSlice>> in_batches(std::span<const StateSlice> slices) const {
    std::vector<std::vector<StateSlice>> batches;
    std::uint64_t left = 0;
    for (const auto& slice : slices) {
      const auto element = static_cast<std::uint64_t>(slice.values.element_size());
      for (std::int64_t from = 0; from < slice.values.numel();) {
        if (left < element) {
          batches.emplace_back();
          left = std::max(sizes_.on_host, element);
        }
        const auto count = std::min(slice.values.numel() - from, static_cast<std::int64_t>(left / element));
        batches.back().push_back({slice.name, slice.shape, slice.begin + from, slice.values.narrow(0, from, count)});
        left -= static_cast<std::uint64_t>(count) * element;
        from += count;
      }
    }
    return batches;
  }

  std::optional<std::string> read_by_way_of_host(std::span<const StateSlice> batch) {
    std::vector<at::Tensor> on_host;
    std::vector<WantedBytes> wanted;
    for (const auto& slice : batch) {
      on_host.push_back(at::empty(slice.values.sizes(), slice.values.options().device(at::kCPU)));
      add_parts(slice, on_host.back(), wanted);
    }
    if (auto damage = read_bytes(wanted)) return damage;
    for (std::size_t i = 0; i < batch.size(); ++i) at::Tensor{batch[i].values}.copy_(on_host[i]);
    return std::nullopt;
  }

  std::optional<std::string> read_bytes(std::vector<WantedBytes>& wanted) {
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
      const auto step = std::max(chunk, sizes_.piece / chunk * chunk);
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
      arrival.size = piece.bytes();
      arrival.buffer = std::make_unique_for_overwrite<std::byte[]>(arrival.size);
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
  ReadSizes sizes_;
  std::optional<StoredRange> unreadable_;
  std::array<Arrival, kReadsAhead> arrivals_;
};

}  // namespace ddpxx
