// ddpxx/launch/standard_descriptors.hpp — makes sure that the standard descriptors are open.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace ddpxx::detail {

/// Opens /dev/null for the standard descriptors that are closed. Otherwise the next pipe, socket or file of the program
/// would get one of their numbers, and what is printed would go there. With `access` O_RDWR what is printed is lost;
/// with O_RDONLY printing fails, as it does on a closed descriptor.
inline void open_standard_descriptors(int access) {
  while (true) {
    const int fd = ::open("/dev/null", access | O_CLOEXEC);
    if (fd > STDERR_FILENO) ::close(fd);
    if (fd < 0 || fd > STDERR_FILENO) return;
  }
}

}  // namespace ddpxx::detail
