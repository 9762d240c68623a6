// ddpxx/core/mapped_file.hpp — a file's bytes as memory; ranks of one node share the pages.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <sys/mman.h>
#include <utility>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>

namespace ddpxx {

/// Private memory that begins as the file's content: writing to it copies the page and never reaches the file.
/// The file may be replaced or unlinked meanwhile, but not shortened (nothing that ddpxx writes is ever shortened): a
/// program that reads bytes that were cut off gets SIGBUS, which run_program turns into the error `storage`. Copying
/// the bytes instead would cost each process of a machine the file's size in memory.
class MappedFile {
 public:
  MappedFile(const std::filesystem::path& path, Errc code) {
    const auto file = File::open(path, code);
    // The file may grow meanwhile, and `bytes_` must not be larger than the mapping.
    const auto size = file.size();
    if (size == 0) return;  // mmap refuses empty files
    // Without MAP_NORESERVE the kernel refuses a file that is larger than memory and swap together: each of its pages
    // might be written and would then need memory of its own.
    void* const start =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.descriptor(), 0);
    if (start == MAP_FAILED) throw file_error(code, "cannot map", path);
    bytes_ = {static_cast<std::byte*>(start), size};
  }
  MappedFile(MappedFile&& other) noexcept : bytes_{std::exchange(other.bytes_, {})} {}
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  }

  std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace ddpxx
