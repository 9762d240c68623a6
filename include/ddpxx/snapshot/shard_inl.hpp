// ddpxx/snapshot/shard_inl.hpp — the definitions of shard.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/accumulate.h>

#include <nlohmann/json.hpp>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/snapshot/chunk_sums.hpp>
#include <ddpxx/snapshot/dtype_name.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/quotes.hpp>
#include <ddpxx/snapshot/safetensors_header.hpp>
#include <ddpxx/snapshot/shard.hpp>
#include <ddpxx/snapshot/state_slice.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

DDPXX_INLINE Shard::Shard(std::string file_name, std::vector<StateSlice> slices)
    : file_name_{std::move(file_name)}, slices_{std::move(slices)} {
  // Wide types come first, so that each slice begins at a multiple of its element size.
  std::stable_sort(slices_.begin(), slices_.end(), [](const StateSlice& a, const StateSlice& b) {
    return a.values.element_size() > b.values.element_size();
  });
  SafetensorsHeader header{{}, {{"format", "pt"}}};
  for (const auto& slice : slices_) {
    const auto bytes = slice.values.nbytes();
    const bool whole = slice.values.numel() == c10::multiply_integers(slice.shape);
    const auto shape = whole ? slice.shape : std::vector<std::int64_t>{slice.values.numel()};
    if (!header.entries.try_emplace(slice.name, slice.values.scalar_type(), shape, bytes_, bytes_ + bytes).second)
      throw Error{Errc::storage, "two tensors of a snapshot are called " + detail::in_quotes(slice.name)};
    bytes_ += bytes;
  }
  header_ = front_of_file(header);
  bytes_ += header_.size();
}

DDPXX_INLINE void Shard::stage(at::Tensor& buffer) {
  const auto size = static_cast<std::int64_t>(bytes_ - header_.size());
  std::optional<at::Device> gpu;
  for (const auto& slice : slices_)
    if (!slice.values.is_cpu()) gpu = slice.values.device();
  if (!buffer.defined() || buffer.numel() < size)
    buffer = at::empty({size}, at::TensorOptions{}.dtype(at::kByte).pinned_memory(gpu.has_value()));
  std::int64_t at = 0;
  for (auto& slice : slices_) {
    const auto bytes = static_cast<std::int64_t>(slice.values.nbytes());
    auto copy = buffer.narrow(0, at, bytes).view(slice.values.scalar_type());
    copy.copy_(slice.values, /*non_blocking=*/true);
    slice.values = std::move(copy);
    at += bytes;
  }
  if (gpu) c10::impl::VirtualGuardImpl{gpu->type()}.getStream(*gpu).synchronize();  // once, for all copies
}

DDPXX_INLINE void Shard::write(Storage& storage, const std::string& folder) {
  std::vector<Bytes> parts{bytes_of(header_)};
  for (auto& slice : slices_) {
    slice.values = slice.values.to(at::kCPU);
    parts.emplace_back(static_cast<const std::byte*>(slice.values.const_data_ptr()), slice.values.nbytes());
  }
  ChunkSums sums{chunk_bytes_for(bytes_)};
  for (const auto part : parts) sums.add(part);
  sums_ = sums.finish();
  storage.write(folder + file_name_, parts);
}

DDPXX_INLINE std::string Shard::report() const {
  nlohmann::json json{{"name", file_name_}, {"bytes", bytes_}, {"crc32c", sums_text(sums_)}};
  json["tensors"] = nlohmann::json::array();
  auto offset = static_cast<std::uint64_t>(header_.size());
  for (const auto& slice : slices_) {
    json["tensors"].push_back(
        {slice.name, detail::dtype_name(slice.values.scalar_type()), slice.shape, slice.begin, slice.end(), offset});
    offset += slice.values.nbytes();
  }
  return json.dump();
}

namespace detail {

inline void add_report(Manifest& manifest, const std::string& text) {
  const auto report = nlohmann::json::parse(text);
  const auto file = manifest.files.size();
  const auto bytes = report.at("bytes").get<std::uint64_t>();
  auto sums = parse_sums(report.at("crc32c").get<std::string>());
  if (!sums) throw Error{Errc::storage, "the report of a rank has checksums that cannot be read, so save again"};
  manifest.files.push_back({report.at("name").get<std::string>(), bytes, chunk_bytes_for(bytes), std::move(*sums)});
  for (const auto& [name, dtype, shape, begin, end, offset] :
       report.at("tensors")
           .get<std::vector<std::tuple<std::string, std::string, std::vector<std::int64_t>, std::int64_t, std::int64_t,
                                       std::uint64_t>>>()) {
    auto& tensor = manifest.tensors.try_emplace(name, dtype_named(dtype), shape).first->second;
    if (begin < end) tensor.parts.push_back({file, begin, end, offset});
  }
}

}  // namespace detail

DDPXX_INLINE void add_reports(Manifest& manifest, std::span<const std::string> reports) {
  for (const auto& text : reports) {
    try {
      detail::add_report(manifest, text);
    } catch (const nlohmann::json::exception& error) {
      throw Error{Errc::storage, std::string{"the report of a rank cannot be read, so save again: "} + error.what()};
    }
  }
  for (auto& [name, tensor] : manifest.tensors)
    std::sort(tensor.parts.begin(), tensor.parts.end(),
              [](const TensorPart& a, const TensorPart& b) { return a.begin < b.begin; });
}

}  // namespace ddpxx
