// ddpxx/core/namespace_name.hpp — a text by which processes find out whether they share a Linux namespace.
#pragma once

#include <fstream>
#include <string>
#include <unistd.h>

namespace ddpxx::detail {

/// Returns a text that is equal for processes in the same Linux namespace of the same boot, and different for all
/// others. `kind` is a file name in /proc/self/ns: with equal texts for "pid" processes can address each other by
/// process ID; with equal texts for "mnt" they see the same mounts. Containers on one host may have namespaces of their
/// own. If the namespace cannot be read, the text names only the boot, and processes of different namespaces may get
/// equal texts.
inline std::string namespace_name(const std::string& kind) {
  std::string boot;
  std::ifstream{"/proc/sys/kernel/random/boot_id"} >> boot;
  char space[64] = {};
  const bool known = ::readlink(("/proc/self/ns/" + kind).c_str(), space, sizeof space - 1) > 0;
  return boot + '/' + (known ? space : "");
}

}  // namespace ddpxx::detail
