// ddpxx/core/standard_output.hpp — whether what a program has printed was written.
#pragma once

#include <cstdio>
#include <iostream>

#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// Flushes the standard output of a program whose output is its result, such as a configuration or a script.
/// Errors  `storage` if a part of the output could not be written, as on a full disk.
inline void check_standard_output() {
  std::cout.flush();
  const bool is_flushed = std::fflush(stdout) == 0;
  if (!std::cout || !is_flushed || std::ferror(stdout) != 0)
    throw Error{Errc::storage, "the output could not be written"};
}

}  // namespace ddpxx
