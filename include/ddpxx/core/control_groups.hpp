// ddpxx/core/control_groups.hpp — the control groups (cgroups) that limit what this process may use.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace ddpxx {

/// The folders with the limits of the control groups that contain this process, each before the one that contains it:
/// those of version 2, and in version 1 those of `controller`, such as memory. A folder may be absent: in a container
/// the list of the process's groups may have the names of the host, and its limits are in the topmost folder.
/// `root` is the folder in which proc and sys are mounted.
inline std::vector<std::filesystem::path> control_groups(std::string_view controller,
                                                         const std::filesystem::path& root = "/") {
  std::vector<std::filesystem::path> folders;
  std::ifstream groups{root / "proc/self/cgroup"};
  // A line is NUMBER:CONTROLLER,CONTROLLER:/GROUP; that of version 2 names no controller.
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const bool is_version_2 = second == first + 1;
    const auto controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    if (!is_version_2 && controllers.find(',' + std::string{controller} + ',') == std::string::npos) continue;
    const auto top = root / "sys/fs/cgroup" / (is_version_2 ? std::string_view{} : controller);
    auto group = std::filesystem::path{line.substr(second + 1)}.lexically_normal().relative_path();
    for (; !group.empty(); group = group.parent_path()) folders.push_back(top / group);
    folders.push_back(top);
  }
  return folders;
}

}  // namespace ddpxx
