// ddpxx/launch/process_table.hpp — reads the system's table of processes.
#pragma once

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <optional>
#include <sstream>
#include <string>
#include <sys/types.h>
#include <system_error>
#include <vector>

#include <ddpxx/core/each_entry.hpp>

namespace ddpxx {

/// A process in the table.
struct ProcessEntry {
  pid_t pid = 0;
  char state = '?';  ///< As in /proc: R, S, D; T if it is stopped; Z if it has ended and is not collected yet.
  pid_t parent = 0;
  pid_t group = 0;
};

/// The entry of one process; none if it does not exist.
inline std::optional<ProcessEntry> process_entry(pid_t pid) {
  std::ifstream file{"/proc/" + std::to_string(pid) + "/stat"};
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(") ");  // the name before it may contain any character
  if (name_end == std::string::npos) return std::nullopt;
  ProcessEntry entry{.pid = pid};
  std::istringstream fields{text.substr(name_end + 2)};
  if (!(fields >> entry.state >> entry.parent >> entry.group)) return std::nullopt;
  return entry;
}

/// True if the process has a handler of its own for this signal.
inline bool handles_signal(pid_t pid, int number) {
  std::ifstream file{"/proc/" + std::to_string(pid) + "/status"};
  for (std::string name; file >> name; std::getline(file, name))
    if (std::uint64_t handled = 0; name == "SigCgt:" && file >> std::hex >> handled)
      return (handled >> static_cast<unsigned>(number - 1) & 1U) != 0;
  return false;
}

/// The entries of all processes that this process may see.
inline std::vector<ProcessEntry> process_table() {
  std::vector<ProcessEntry> table;
  detail::each_entry("/proc", [&](const auto& folder) {
    const auto name = folder.path().filename().string();
    pid_t pid = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (read.ec != std::errc{} || read.ptr != name.data() + name.size()) return;
    if (const auto entry = process_entry(pid)) table.push_back(*entry);
  });
  return table;
}

/// True if a process of this group runs or is stopped.
inline bool has_living_process(const std::vector<ProcessEntry>& table, pid_t group) {
  for (const auto& entry : table)
    if (entry.group == group && entry.state != 'Z' && entry.state != 'X') return true;
  return false;
}

}  // namespace ddpxx
