// ddpxx/snapshot/safetensors_inl.hpp — the definitions of safetensors.hpp.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/mapped_file.hpp>
#include <ddpxx/snapshot/quotes.hpp>
#include <ddpxx/snapshot/safetensors.hpp>
#include <ddpxx/snapshot/safetensors_header.hpp>
#include <ddpxx/snapshot/tensor_of_bytes.hpp>

namespace ddpxx {

namespace detail {

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and so is this reader");

inline constexpr std::string_view kChecksumKey = "ddpxx.checksum";
inline constexpr std::string_view kChecksumFront = "\"ddpxx.checksum\":\"";
inline constexpr std::string_view kNoChecksum = "00000000";  // in place of the checksum while it is computed

inline Bytes bytes_of_tensor(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

inline void check_sum(std::string_view file, std::size_t header_end) {
  const auto front = file.substr(0, header_end).find(kChecksumFront);
  const auto digits = front == std::string_view::npos ? header_end : front + kChecksumFront.size();
  if (digits + kNoChecksum.size() > header_end) refuse_file("its checksum is not where ddpxx writes it");
  auto sum = crc32c(ddpxx::bytes_of(file.substr(0, digits)));
  sum = crc32c(ddpxx::bytes_of(kNoChecksum), sum);
  sum = crc32c(ddpxx::bytes_of(file.substr(digits + kNoChecksum.size())), sum);
  if (file.substr(digits, kNoChecksum.size()) != crc32c_text(sum))
    refuse_file("its checksum is wrong; a program that changes such a file must leave out " +
                std::string{kChecksumKey});
}

inline Safetensors read_mapped(const std::shared_ptr<MappedFile>& map, Checksum checksum) {
  const auto bytes = map->bytes();
  std::uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) refuse_file("it has " + std::to_string(bytes.size()) + " bytes");
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - sizeof(header_bytes))
    refuse_file("its header claims " + std::to_string(header_bytes) + " bytes");

  const std::string_view file{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  const auto header_end = sizeof(header_bytes) + header_bytes;
  auto header = parse_safetensors_header(file.substr(sizeof(header_bytes), header_bytes), file.size() - header_end);
  const bool has_sum = header.metadata.erase(std::string{kChecksumKey}) > 0;
  if (has_sum)
    check_sum(file, header_end);
  else if (checksum == Checksum::required)
    refuse_file("it has no ddpxx.checksum");

  Safetensors content{{}, std::move(header.metadata)};
  for (const auto& [name, entry] : header.entries)
    content.tensors.emplace(name, tensor_of_bytes(bytes.subspan(header_end + entry.begin, entry.end - entry.begin),
                                                  entry.dtype, entry.shape, map, in_quotes(name)));
  return content;
}

}  // namespace detail

DDPXX_INLINE void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                                    const Metadata& metadata) {
  // Wide types come first, so that each tensor begins at a multiple of its element size.
  std::vector<std::pair<std::string_view, at::Tensor>> in_order(tensors.begin(), tensors.end());
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](const auto& a, const auto& b) { return a.second.element_size() > b.second.element_size(); });
  SafetensorsHeader header{{}, metadata};
  header.metadata[std::string{detail::kChecksumKey}] = detail::kNoChecksum;
  std::size_t offset = 0;
  for (const auto& [name, tensor] : in_order) {
    const auto num_bytes = tensor.nbytes();
    header.entries[std::string{name}] = {tensor.scalar_type(), tensor.sizes().vec(), offset, offset + num_bytes};
    offset += num_bytes;
  }

  std::string front;
  try {
    front = front_of_file(header);
  } catch (const Error& error) {
    throw Error{Errc::storage, "cannot write " + path.string() + ": " + error.what()};
  }
  const auto digits = front.find(detail::kChecksumFront) + detail::kChecksumFront.size();

  write_file_atomic(path, [&](File& file) {
    std::uint32_t sum = 0;
    const auto write = [&](Bytes bytes) {
      sum = crc32c(bytes, sum);
      file.write(bytes);
    };
    write(bytes_of(front));
    for (const auto& [name, tensor] : in_order)
      write(detail::bytes_of_tensor(tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()));
    file.write_at(digits, bytes_of(crc32c_text(sum)));
  });
}

DDPXX_INLINE Safetensors read_safetensors(const std::filesystem::path& path, Checksum checksum) {
  const auto map = std::make_shared<MappedFile>(path, Errc::storage);
  try {
    return detail::read_mapped(map, checksum);
  } catch (const Error& error) {
    throw Error{Errc::storage, path.string() + " is damaged, or no safetensors file: " + error.what()};
  }
}

}  // namespace ddpxx
