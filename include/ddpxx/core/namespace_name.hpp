// ddpxx/core/namespace_name.hpp — tells processes apart that do not see the same system.
#pragma once

#include <fstream>
#include <string>
#include <unistd.h>

namespace ddpxx::detail {

/// A text that is equal for processes of one running system in the same namespace of Linux, and different for all
/// others. `kind` is a name in /proc/self/ns: processes with one text for "pid" see each other by their numbers, and
/// those with one text for "mnt" have the same file systems mounted. Containers on one host may have namespaces of
/// their own.
inline std::string namespace_name(const std::string& kind) {
  std::string boot;
  std::ifstream{"/proc/sys/kernel/random/boot_id"} >> boot;
  char space[64] = {};
  const bool known = ::readlink(("/proc/self/ns/" + kind).c_str(), space, sizeof space - 1) > 0;
  return boot + '/' + (known ? space : "");
}

}  // namespace ddpxx::detail
