// ddpxx/core/signal_name.hpp — the names of signals.
#pragma once

#include <cstring>
#include <string>

namespace ddpxx {

/// `SIGKILL` for 9.
inline std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name != nullptr ? "SIG" + std::string{name} : "signal " + std::to_string(number);
}

}  // namespace ddpxx
