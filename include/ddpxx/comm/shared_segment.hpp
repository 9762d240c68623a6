// ddpxx/comm/shared_segment.hpp — memory that processes of one host share.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <utility>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/failpoint.hpp>

namespace ddpxx::detail {

/// A mapped segment of shared memory. It has no name in a file system: the system frees it when the last process that
/// has it ends, by whatever cause. Its bytes are 0 at first. They take up memory when they are reserved or first used.
class SharedSegment {
 public:
  /// Makes a segment.
  /// Errors  `memory` if the system refuses it.
  static SharedSegment make(std::size_t bytes) {
    Descriptor file{::memfd_create("ddpxx", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    // The seals keep a process from making the file smaller, which would end the others by SIGBUS.
    if (!file || ::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
        ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
      throw refused("made");
    return SharedSegment{std::move(file), bytes};
  }

  /// Opens the segment that `process` has made and has open as its descriptor `fd`. The system allows that to
  /// processes of the same user which see each other's numbers.
  /// Errors  `memory` if the system refuses it.
  static SharedSegment open(pid_t process, int fd, std::size_t bytes) {
    Descriptor file{
        ::open(("/proc/" + std::to_string(process) + "/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_CLOEXEC)};
    struct ::stat facts {};
    if (!file || ::fstat(file.get(), &facts) != 0) throw refused("opened");
    if (facts.st_size != static_cast<off_t>(bytes))
      throw Error{Errc::memory, "shared memory has " + std::to_string(facts.st_size) + " bytes instead of " +
                                    std::to_string(bytes) + ": all ranks need one version"};
    return SharedSegment{std::move(file), bytes};
  }

  SharedSegment(SharedSegment&& other) noexcept
      : file_{std::move(other.file_)}, memory_{std::exchange(other.memory_, nullptr)}, bytes_{other.bytes_} {}
  SharedSegment& operator=(SharedSegment&&) = delete;
  ~SharedSegment() {
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
  }

  /// Takes memory for `bytes` bytes from number `begin` on, near the core on which this thread runs. Where the system
  /// has no memory left, the first use of bytes that are not reserved would end the process by SIGBUS. For use before
  /// close().
  /// Errors  `memory` if the system has no memory left.
  void reserve(std::size_t begin, std::size_t bytes) const {
    int reason = 0;
    do
      reason = failpoint_fails("shared_segment.reserve")
                   ? errno
                   : ::posix_fallocate(file_.get(), static_cast<off_t>(begin), static_cast<off_t>(bytes));
    while (reason == EINTR);
    if (reason == 0) return;
    errno = reason;
    throw refused("reserved");
  }

  std::byte* data() const noexcept { return static_cast<std::byte*>(memory_); }
  int fd() const noexcept { return file_.get(); }

  /// Closes the descriptor. The memory stays; other processes cannot open it through this one any more.
  void close() noexcept { file_.close(); }

 private:
  SharedSegment(Descriptor file, std::size_t bytes)
      : file_{std::move(file)},
        memory_{::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0)},
        bytes_{bytes} {
    if (memory_ == MAP_FAILED) {
      memory_ = nullptr;
      throw refused("mapped");
    }
  }

  static Error refused(const char* step) {
    return {Errc::memory, "shared memory cannot be " + std::string{step} + ": " + std::strerror(errno)};
  }

  Descriptor file_;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ddpxx::detail
