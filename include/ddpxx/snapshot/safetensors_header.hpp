// ddpxx/snapshot/safetensors_header.hpp — the header of a safetensors file: read with every check, written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

namespace ddpxx {

using Metadata = std::map<std::string, std::string>;

/// One tensor of a safetensors file; offsets count from the end of the header.
struct SafetensorsEntry {
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;
  std::size_t begin = 0;
  std::size_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> entries;
  Metadata metadata;
};

/// The longest header that the format's own library reads.
inline constexpr std::size_t kMaxHeaderBytes = 100'000'000;

/// Reads the JSON header of a file in which `data_bytes` bytes follow the header. Takes memory in proportion to the
/// text, whatever sizes the text claims.
/// Errors  `storage` for text that is not such a header, a name that comes twice, an unknown dtype, a shape that
///         overflows or does not fit its bytes, and tensors that overlap, leave a gap or do not end with the file.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::size_t data_bytes);

/// Returns the header as JSON: the metadata first, then the tensors by name.
/// Errors  `storage` for text that is not UTF-8 and for names that a reader would refuse.
std::string print_safetensors_header(const SafetensorsHeader& header);

/// Returns what a file has before its tensors: the length of the header, and the header, which ends at a multiple of 8.
///
/// Errors  `storage` as print_safetensors_header, and for a header that is longer than kMaxHeaderBytes.
std::string front_of_file(const SafetensorsHeader& header);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/snapshot/safetensors_header_inl.hpp>
#endif
