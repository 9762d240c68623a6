// ddpxx/snapshot/shard_reader.hpp — reads ranges of tensors out of a snapshot's files, and proves what it reads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
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

/// Reads whole chunks, those that are wanted and no others, some at a time; what they hold is given out only after its
/// checksum was found right.
class ShardReader {
 public:
  /// The files lie in `folder` of the storage.
  ShardReader(Storage& storage, std::string folder, const Manifest& manifest)
      : storage_{&storage}, folder_{std::move(folder)}, manifest_{&manifest} {}

  /// Fills the slices; each must be of a tensor that the manifest has, in the type that it has there.
  /// Errors  `storage` for what cannot be read. Damage is no error but a result: the sentence that says which file has
  ///         it. Some of the slices are overwritten then.
  std::optional<std::string> read(std::span<StateSlice> slices) {
    const c10::NoGradGuard no_grad;
    std::vector<at::Tensor> on_host;
    std::vector<WantedBytes> wanted;
    for (const auto& slice : slices) {
      on_host.push_back(slice.values.is_cpu()
                            ? slice.values
                            : at::empty(slice.values.sizes(), slice.values.options().device(at::kCPU)));
      add_parts(slice, on_host.back(), wanted);
    }
    if (auto damage = read_bytes(wanted)) return damage;
    for (std::size_t i = 0; i < slices.size(); ++i)
      if (!slices[i].values.is_cpu()) slices[i].values.copy_(on_host[i]);
    return std::nullopt;
  }

  /// Reads every byte of every file; returns the first damage.
  std::optional<std::string> verify() {
    std::vector<WantedBytes> all;
    for (std::size_t i = 0; i < manifest_->files.size(); ++i) all.push_back({i, 0, manifest_->files[i].bytes, nullptr});
    return read_bytes(all);
  }

 private:
  static constexpr std::uint64_t kReadAtOnce = std::uint64_t{32} << 20;

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

  std::optional<std::string> read_bytes(std::vector<WantedBytes>& wanted) {
    std::sort(wanted.begin(), wanted.end(), [](const WantedBytes& a, const WantedBytes& b) {
      return std::tie(a.file, a.begin) < std::tie(b.file, b.begin);
    });
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
      if (auto damage = read_run(file, begin, end, {wanted.data() + first, last - first})) return damage;
      first = last;
    }
    return std::nullopt;
  }

  std::optional<std::string> read_run(const ShardFile& file, std::uint64_t begin, std::uint64_t end,
                                      std::span<const WantedBytes> wanted) {
    const auto chunk = file.chunk_bytes;
    const auto step = std::max(chunk, kReadAtOnce / chunk * chunk);
    for (auto at = begin; at < end; at += step) {
      buffer_.resize(std::min(step, end - at));
      storage_->read(folder_ + file.name, at, buffer_);
      for (std::uint64_t i = 0; i < buffer_.size(); i += chunk) {
        const Bytes bytes{buffer_.data() + i, std::min<std::uint64_t>(chunk, buffer_.size() - i)};
        if (crc32c(bytes) != file.sums[(at + i) / chunk])
          return storage_->whole_name(folder_ + file.name) + " is damaged between its bytes " + std::to_string(at + i) +
                 " and " + std::to_string(at + i + bytes.size());
      }
      for (const auto& each : wanted) {
        const auto from = std::max(each.begin, at), to = std::min(each.end, at + buffer_.size());
        if (from < to && each.to != nullptr)
          std::memcpy(each.to + (from - each.begin), buffer_.data() + (from - at), to - from);
      }
    }
    return std::nullopt;
  }

  Storage* storage_;
  std::string folder_;
  const Manifest* manifest_;
  std::vector<std::byte> buffer_;
};

}  // namespace ddpxx
