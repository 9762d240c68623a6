// ddpxx/snapshot/shard.hpp — the file that one rank adds to a snapshot, and the report of where its tensors lie.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/state_slice.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

/// Writes slices of tensors into one safetensors file. A slice that is a whole tensor has the tensor's shape in the
/// file; any other slice is 1-D. Until `stage` copies them, `write` reads the memory of the slices themselves.
class Shard {
 public:
  Shard(std::string file_name, std::vector<StateSlice> slices);

  /// Copies all slices into `buffer`, which grows if needed. From then on the run may change the slices.
  void stage(at::Tensor& buffer);

  /// Writes the file into `folder` of a storage. Slices on another device are copied to the CPU first.
  /// Errors  `storage`.
  void write(Storage& storage, const std::string& folder);

  /// Returns what the manifest needs to know of the file, as JSON. Comes after `write`.
  std::string report() const;

 private:
  std::string file_name_;
  std::vector<StateSlice> slices_;
  std::string header_;  ///< The first bytes of the file: the length of the header, then the header.
  std::uint64_t bytes_ = 0;
  std::vector<std::uint32_t> sums_;
};

/// Adds the files and tensors of all ranks' reports to a manifest.
/// Errors  `storage` for a report that is not a `Shard::report`.
void add_reports(Manifest& manifest, std::span<const std::string> reports);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/snapshot/shard_inl.hpp>
#endif
