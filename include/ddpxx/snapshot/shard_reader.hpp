// ddpxx/snapshot/shard_reader.hpp — reads ranges of tensors out of a snapshot's files, and proves what it reads.
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

/// Bytes of a file and where they are wanted.
struct WantedBytes {
  std::size_t file = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::byte* to = nullptr;
};

/// What reading holds in memory besides the slices.
struct ReadSizes {
  std::uint64_t piece = std::uint64_t{16} << 20;     ///< Bytes of one read; four of them are held.
  std::uint64_t on_host = std::uint64_t{256} << 20;  ///< Bytes on their way to another device.
};

/// Reads whole chunks, those that are wanted and no others, some at a time; what they hold is given out only after its
/// checksum was found right. The next ones are on their way meanwhile. A chunk whose checksum is wrong is read once
/// more: it may have been damaged on its way here.
class ShardReader {
 public:
  /// The files lie in `folder` of the storage.
  ShardReader(Storage& storage, std::string folder, const Manifest& manifest, ReadSizes sizes = {})
      : storage_{&storage}, folder_{std::move(folder)}, manifest_{&manifest}, sizes_{sizes} {}

  /// Fills the slices; each must be of a tensor that the manifest has, in the type that it has there.
  /// Errors  `storage` where the place does not answer. Damage is no error but a result: the sentence that says which
  ///         file has it; a file that the place cannot read is damaged. Some of the slices are overwritten then.
  std::optional<std::string> read(std::span<const StateSlice> slices) {
    const c10::NoGradGuard no_grad;
    std::vector<WantedBytes> wanted;
    std::vector<StateSlice> elsewhere;
    for (const auto& slice : slices)
      if (is_in_reach(slice.values))
        add_parts(slice, slice.values, wanted);
      else
        elsewhere.push_back(slice);
    if (auto damage = read_bytes(wanted)) return damage;
    for (const auto& batch : in_batches(elsewhere))
      if (auto damage = read_by_way_of_host(batch)) return damage;
    return std::nullopt;
  }

  /// The bytes that the place could not give, where that is the damage that was returned.
  const std::optional<StoredRange>& unreadable() const noexcept { return unreadable_; }

  /// Reads every byte of every file; returns the first damage.
  std::optional<std::string> verify() {
    std::vector<WantedBytes> all;
    for (std::size_t i = 0; i < manifest_->files.size(); ++i) all.push_back({i, 0, manifest_->files[i].bytes, nullptr});
    return read_bytes(all);
  }

 private:
  /// Whole chunks that lie one behind the other, and what is wanted of them.
  struct Piece {
    const ShardFile* file = nullptr;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::span<const WantedBytes> wanted;

    std::uint64_t bytes() const { return end - begin; }
  };
  /// Where a piece arrives.
  struct Arrival {
    std::unique_ptr<std::byte[]> room;
    std::uint64_t size = 0;
    std::future<void> read = {};  ///< Its destructor waits for the thread.
  };

  static constexpr std::size_t kUnderWay = 4;  // one that is looked at, and three that a server may be sending

  static bool is_in_reach(const at::Tensor& values) { return values.is_cpu() && values.is_contiguous(); }

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

  /// The slices in their order, cut so that no batch has more bytes than may be on the host.
  std::vector<std::vector<StateSlice>> in_batches(std::span<const StateSlice> slices) const {
    std::vector<std::vector<StateSlice>> batches;
    std::uint64_t room = 0;
    for (const auto& slice : slices) {
      const auto element = static_cast<std::uint64_t>(slice.values.element_size());
      for (std::int64_t from = 0; from < slice.values.numel();) {
        if (room < element) {
          batches.emplace_back();
          room = std::max(sizes_.on_host, element);
        }
        const auto count = std::min(slice.values.numel() - from, static_cast<std::int64_t>(room / element));
        batches.back().push_back({slice.name, slice.shape, slice.begin + from, slice.values.narrow(0, from, count)});
        room -= static_cast<std::uint64_t>(count) * element;
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
        for (; begun < std::min(pieces.size(), i + kUnderWay); ++begun) begin(pieces[begun], arrival_of(begun));
        arrival_of(i).read.get();
        if (auto damage = take(pieces[i], {arrival_of(i).room.get(), pieces[i].bytes()})) return damage;
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
      // One run of chunks without a gap, and all that begins in it.
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

  Arrival& arrival_of(std::size_t piece) { return arrivals_[piece % kUnderWay]; }

  /// Where no thread is left the piece is read once it is asked for.
  void begin(const Piece& piece, Arrival& arrival) const {
    if (arrival.read.valid()) arrival.read.wait();  // of a reading that was given up
    if (arrival.size < piece.bytes()) {
      arrival.size = piece.bytes();
      arrival.room = std::make_unique_for_overwrite<std::byte[]>(arrival.size);
    }
    const auto read = [this, piece, to = arrival.room.get()] {
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
      if (auto damage = prove(*piece.file, piece.begin + i, bytes.subspan(i, std::min(chunk, bytes.size() - i))))
        return damage;
    for (const auto& each : piece.wanted) {
      const auto from = std::max(each.begin, piece.begin), to = std::min(each.end, piece.end);
      if (from < to && each.to != nullptr)
        std::memcpy(each.to + (from - each.begin), bytes.data() + (from - piece.begin), to - from);
    }
    return std::nullopt;
  }

  /// One chunk, which was read from the byte `at` of the file.
  std::optional<std::string> prove(const ShardFile& file, std::uint64_t at, std::span<std::byte> bytes) const {
    const auto is_right = [&] { return crc32c(bytes) == file.sums[at / file.chunk_bytes]; };
    if (is_right()) return std::nullopt;
    storage_->read(folder_ + file.name, at, bytes);
    if (is_right()) return std::nullopt;
    return storage_->whole_name(folder_ + file.name) + " is damaged between its bytes " + std::to_string(at) + " and " +
           std::to_string(at + bytes.size());
  }

  Storage* storage_;
  std::string folder_;
  const Manifest* manifest_;
  ReadSizes sizes_;
  std::optional<StoredRange> unreadable_;
  std::array<Arrival, kUnderWay> arrivals_;
};

}  // namespace ddpxx
