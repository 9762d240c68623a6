// ddpxx/snapshot/safetensors.hpp — named tensors in one file, in the safetensors format: the header's length in 8 bytes
// (little-endian), the header in JSON, the tensors' bytes without a gap. Beyond the format, a checksum over the whole
// file lies in the metadata.
#pragma once

#include <filesystem>

#include <ddpxx/flat/named_tensors.hpp>
#include <ddpxx/snapshot/safetensors_header.hpp>

namespace ddpxx {

/// The tensors and the metadata of a safetensors file.
struct Safetensors {
  NamedTensors tensors;
  Metadata metadata;
};

/// Whether a file must have the checksum that `write_safetensors` adds. Other programs write none. A wrong checksum is
/// always refused.
enum class Checksum { optional, required };

/// Writes the file atomically. Tensors on other devices and strided tensors are copied one at a time.
/// Errors  `storage`, naming the file, if it cannot be written or a reader would refuse it.
void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors, const Metadata& metadata = {});

/// Reads a file by mapping it. Processes share the memory of the tensors until they write to it.
/// Errors  `storage`, naming the file and what is wrong with it.
Safetensors read_safetensors(const std::filesystem::path& path, Checksum checksum = Checksum::optional);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/snapshot/safetensors_inl.hpp>
#endif
