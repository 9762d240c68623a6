// ddpxx/snapshot/shard_reader_inl.hpp — the definitions of shard_reader.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/piece_reader.hpp>
#include <ddpxx/snapshot/shard_reader.hpp>
#include <ddpxx/snapshot/state_slice.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

namespace detail {

inline bool is_writable_here(const at::Tensor& values) { return values.is_cpu() && values.is_contiguous(); }

/// Adds the bytes of the files that `values`, the elements of the slice, come from.
inline void add_parts(const Manifest& manifest, const StateSlice& slice, const at::Tensor& values,
                      std::vector<WantedBytes>& wanted) {
  const auto element = static_cast<std::int64_t>(values.element_size());
  auto* const to = static_cast<std::byte*>(values.mutable_data_ptr());
  for (const auto& part : manifest.tensors.at(slice.name).parts) {
    const auto begin = std::max(part.begin, slice.begin), end = std::min(part.end, slice.end());
    if (begin >= end) continue;
    const auto offset = part.offset + static_cast<std::uint64_t>((begin - part.begin) * element);
    wanted.push_back({part.file, offset, offset + static_cast<std::uint64_t>((end - begin) * element),
                      to + (begin - slice.begin) * element});
  }
}

/// Cuts the slices, in their order, into batches of at most `max_bytes` bytes.
inline std::vector<std::vector<StateSlice>> in_batches(std::span<const StateSlice> slices, std::uint64_t max_bytes) {
  std::vector<std::vector<StateSlice>> batches;
  std::uint64_t left = 0;
  for (const auto& slice : slices) {
    const auto element = static_cast<std::uint64_t>(slice.values.element_size());
    for (std::int64_t from = 0; from < slice.values.numel();) {
      if (left < element) {
        batches.emplace_back();
        left = std::max(max_bytes, element);
      }
      const auto count = std::min(slice.values.numel() - from, static_cast<std::int64_t>(left / element));
      batches.back().push_back({slice.name, slice.shape, slice.begin + from, slice.values.narrow(0, from, count)});
      left -= static_cast<std::uint64_t>(count) * element;
      from += count;
    }
  }
  return batches;
}

}  // namespace detail

DDPXX_INLINE ShardReader::ShardReader(Storage& storage, std::string folder, const Manifest& manifest, ReadSizes sizes)
    : manifest_{&manifest},
      bytes_on_host_{sizes.on_host},
      pieces_{std::make_unique<detail::PieceReader>(storage, std::move(folder), manifest, sizes.piece)} {}

DDPXX_INLINE ShardReader::~ShardReader() = default;

DDPXX_INLINE std::optional<std::string> ShardReader::read(std::span<const StateSlice> slices) {
  const c10::NoGradGuard no_grad;
  std::vector<detail::WantedBytes> wanted;
  std::vector<StateSlice> elsewhere;
  for (const auto& slice : slices)
    if (detail::is_writable_here(slice.values))
      detail::add_parts(*manifest_, slice, slice.values, wanted);
    else
      elsewhere.push_back(slice);
  if (auto damage = pieces_->read(wanted)) return damage;
  for (const auto& batch : detail::in_batches(elsewhere, bytes_on_host_))
    if (auto damage = read_by_way_of_host(batch)) return damage;
  return std::nullopt;
}

DDPXX_INLINE const std::optional<StoredRange>& ShardReader::unreadable() const noexcept {
  return pieces_->unreadable();
}

DDPXX_INLINE std::optional<std::string> ShardReader::verify() {
  std::vector<detail::WantedBytes> all;
  for (std::size_t i = 0; i < manifest_->files.size(); ++i) all.push_back({i, 0, manifest_->files[i].bytes, nullptr});
  return pieces_->read(all);
}

DDPXX_INLINE std::optional<std::string> ShardReader::read_by_way_of_host(std::span<const StateSlice> batch) {
  std::vector<at::Tensor> on_host;
  std::vector<detail::WantedBytes> wanted;
  for (const auto& slice : batch) {
    on_host.push_back(at::empty(slice.values.sizes(), slice.values.options().device(at::kCPU)));
    detail::add_parts(*manifest_, slice, on_host.back(), wanted);
  }
  if (auto damage = pieces_->read(wanted)) return damage;
  for (std::size_t i = 0; i < batch.size(); ++i) at::Tensor{batch[i].values}.copy_(on_host[i]);
  return std::nullopt;
}

}  // namespace ddpxx
