// ddpxx/launch/agent/oom_kills.hpp — the kernel's count of processes that it has killed because memory ran out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace ddpxx::detail {

/// A count of killed processes, and the file from which it was read.
struct OomKills {
  std::filesystem::path file;
  std::int64_t count = 0;
};

/// The number of processes that the kernel has killed because memory ran out: in this process's cgroup (version 2), or
/// on the machine if the cgroup has no count. None if the kernel has no count. `root` is the root of the file system.
inline std::optional<OomKills> oom_kills(const std::filesystem::path& root = "/") {
  const auto count_in = [](const std::filesystem::path& path) -> std::optional<OomKills> {
    std::ifstream file{path};
    std::string name;
    for (std::int64_t count = 0; file >> name >> count;)
      if (name == "oom_kill") return OomKills{path, count};
    return std::nullopt;
  };
  std::ifstream groups{root / "proc/self/cgroup"};
  for (std::string line; std::getline(groups, line);)
    if (line.starts_with("0::/"))
      if (auto kills = count_in(root / "sys/fs/cgroup" / line.substr(4) / "memory.events")) return kills;
  return count_in(root / "proc/vmstat");
}

/// A hint about a SIGKILL that the launcher has not sent, from the counts before and after it.
inline std::string kill_hint(const std::optional<OomKills>& before, const std::optional<OomKills>& after) {
  if (before && after && before->file == after->file && after->count > before->count)
    return "memory ran out: the kernel has killed " + std::to_string(after->count - before->count) +
           (after->count - before->count == 1 ? " process" : " processes") + " meanwhile (oom_kill in " +
           after->file.string() + "); use a smaller batch or model, or allow more memory";
  return "SIGKILL comes from the kernel when memory runs out, or from a kill command";
}

}  // namespace ddpxx::detail
