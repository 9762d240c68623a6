// ddpxx/snapshot/manifest.hpp — the manifest of a snapshot: the facts of the run, the files that belong to the
// snapshot, and the place of each tensor in them. It is written after all files, as JSON that ends with its own
// checksum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

#include <ddpxx/snapshot/run_info.hpp>

namespace ddpxx {

/// One file of a snapshot, with a checksum for each of its chunks.
struct ShardFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t chunk_bytes = 0;
  std::vector<std::uint32_t> sums;
};

/// A range of a tensor's elements, and the bytes of a file that hold it.
struct TensorPart {
  std::size_t file = 0;    ///< Index into Manifest::files.
  std::int64_t begin = 0;  ///< The part holds the elements [begin, end) of the tensor, in row-major order.
  std::int64_t end = 0;
  std::uint64_t offset = 0;  ///< The byte of the file where the part begins.
};

/// A tensor of a snapshot: its type, its shape, and the parts that hold its elements.
struct StoredTensor {
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;
  std::vector<TensorPart> parts;  ///< In the order of the elements. Together they hold the whole tensor.

  std::int64_t numel() const {
    std::int64_t product = 1;
    for (const auto length : shape) product *= length;
    return product;
  }
};

/// What a snapshot says about a run, and where each tensor of the run lies in the snapshot's files.
/// Tensors are named `model.NAME`, `optimizer.MOMENT.NAME`, `random.RANK` and so on.
struct Manifest {
  RunInfo run = {};
  int world_size = 1;
  std::int64_t written_at = 0;  ///< Seconds since 1970-01-01 UTC; 0 if unknown.
  /// A name for each start of the program that led to this snapshot, the latest last. File names contain these names,
  /// so a file that a killed start left behind can be told from another run's files.
  std::vector<std::string> starts = {};
  std::vector<ShardFile> files = {};
  std::map<std::string, StoredTensor> tensors = {};
};

inline constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{1} << 28;

/// Returns the manifest as JSON.
std::string print_manifest(const Manifest& manifest);

/// Reads a manifest and checks it: its checksum, its numbers and names, and that the parts of each tensor lie inside
/// the files without overlap and make up the whole tensor.
/// Errors  `storage` with what is wrong with the text.
Manifest parse_manifest(std::string_view text);

/// True if the manifest's own checksum is right.
bool is_whole_manifest(std::string_view text);

/// True if another version of ddpxx wrote the manifest and its checksum is right: it is not damaged and must be kept.
bool is_of_another_version(std::string_view text);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/snapshot/manifest_inl.hpp>
#endif
