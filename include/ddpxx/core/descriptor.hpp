// ddpxx/core/descriptor.hpp — a file descriptor that has one owner.
#pragma once

#include <concepts>
#include <unistd.h>
#include <utility>

namespace ddpxx {

/// Owns one open file descriptor, or none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) noexcept : fd_{fd} {}
  Descriptor(Descriptor&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

  void close() noexcept {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};
static_assert(std::movable<Descriptor> && !std::copyable<Descriptor>);

}  // namespace ddpxx
