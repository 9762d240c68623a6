// ddpxx/launch/standard_descriptors.hpp — makes sure that the standard descriptors are open.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace ddpxx::detail {

/// Opens the standard descriptors that are closed, because otherwise a pipe of a rank would get one of their numbers.
inline void open_standard_descriptors() {
  while (true) {
    const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd > STDERR_FILENO) ::close(fd);
    if (fd < 0 || fd > STDERR_FILENO) return;
  }
}

}  // namespace ddpxx::detail
