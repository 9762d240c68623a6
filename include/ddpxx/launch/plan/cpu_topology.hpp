// ddpxx/launch/plan/cpu_topology.hpp — which processors are close to each other and to a GPU, by the kernel's files.
#pragma once

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <ddpxx/core/cpu_set.hpp>
#include <ddpxx/core/each_entry.hpp>

namespace ddpxx::detail {

/// The numbers of a list of the kernel such as `0-3,8`.
inline CpuSet parse_cpu_list(std::string_view text) {
  CpuSet result;
  while (!text.empty()) {
    const auto part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    int first = 0;
    const char *const begin = part.data(), *const end = begin + part.size();
    const auto [after, status] = std::from_chars(begin, end, first);
    if (status != std::errc{}) continue;
    int last = first;
    if (after != end && *after == '-') std::from_chars(after + 1, end, last);
    for (int number = first; number <= last && number < kMostCpus; ++number) result.insert(number);
  }
  return result;
}

/// The processors of this machine, without those on which this process may not run, and its GPUs.
/// Source  Linux, Documentation/ABI/stable/sysfs-devices-node, testing/sysfs-devices-system-cpu.
class CpuTopology {
 public:
  /// `root` is "/", but for tests.
  CpuTopology(std::filesystem::path root, CpuSet allowed) : root_{std::move(root)}, allowed_{std::move(allowed)} {
    for (const int node : parse_cpu_list(text("sys/devices/system/node/online"))) {
      auto cpus = allowed_of(parse_cpu_list(text("sys/devices/system/node/node" + std::to_string(node) + "/cpulist")));
      if (!cpus.empty()) nodes_[node] = std::move(cpus);
    }
    if (nodes_.empty()) nodes_[0] = allowed_;  // a kernel without NUMA
  }

  /// The NUMA nodes that have allowed processors, with these processors.
  const std::map<int, CpuSet>& nodes() const noexcept { return nodes_; }

  /// The socket of a processor; 0 if the kernel does not tell.
  int socket_of(int cpu) const {
    const auto found = text(cpu_folder(cpu) + "/topology/physical_package_id");
    int socket = 0;
    std::from_chars(found.data(), found.data() + found.size(), socket);
    return socket;
  }

  /// The lowest processor of the physical core that `cpu` belongs to.
  int core_of(int cpu) const {
    const auto siblings = parse_cpu_list(text(cpu_folder(cpu) + "/topology/thread_siblings_list"));
    return siblings.empty() ? cpu : *siblings.begin();
  }

  /// The lowest processor of those that share their largest data cache with `cpu`.
  int cache_of(int cpu) const {
    int best_level = -1, lowest = cpu;
    const auto folder = cpu_folder(cpu) + "/cache";
    each_entry(root_ / folder, [&](const auto& entry) {
      const auto name = folder + '/' + entry.path().filename().string();
      const auto type = text(name + "/type"), level_text = text(name + "/level");
      int level = -1;
      std::from_chars(level_text.data(), level_text.data() + level_text.size(), level);
      const auto sharing = parse_cpu_list(text(name + "/shared_cpu_list"));
      if ((type != "Unified" && type != "Data") || level <= best_level || sharing.empty()) return;
      best_level = level;
      lowest = *sharing.begin();
    });
    return lowest;
  }

  /// The NUMA nodes of the GPUs that a program may use, in the order of their numbers for the program: by PCI address,
  /// or as `visible`, the value of CUDA_VISIBLE_DEVICES, names them.
  /// Source  NVIDIA's driver, /proc/driver/nvidia/gpus.
  std::vector<int> nodes_of_gpus(const char* visible) const {
    struct Gpu {
      std::string uuid;
      int node = 0;
    };
    std::map<std::string, Gpu> by_address;
    each_entry(root_ / "proc/driver/nvidia/gpus", [&](const auto& entry) {
      const auto address = entry.path().filename().string();
      const auto node_text = text("sys/bus/pci/devices/" + address + "/numa_node");
      Gpu gpu{.uuid = uuid_of(text("proc/driver/nvidia/gpus/" + address + "/information"))};
      std::from_chars(node_text.data(), node_text.data() + node_text.size(), gpu.node);
      gpu.node = std::max(gpu.node, 0);  // the kernel writes -1 on a machine with one node
      by_address[address] = std::move(gpu);
    });
    std::vector<Gpu> all;
    for (auto& [address, gpu] : by_address) all.push_back(std::move(gpu));
    std::vector<int> nodes;
    if (visible == nullptr) {
      for (const auto& gpu : all) nodes.push_back(gpu.node);
      return nodes;
    }
    for (std::string_view names = visible; !names.empty();) {
      const auto name = names.substr(0, names.find(','));
      names.remove_prefix(std::min(names.size(), name.size() + 1));
      std::size_t number = 0;
      const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), number);
      auto found = all.end();
      if (status == std::errc{} && end == name.data() + name.size() && number < all.size())
        found = all.begin() + static_cast<std::ptrdiff_t>(number);
      else if (name.starts_with("GPU-"))
        found = std::find_if(all.begin(), all.end(), [&](const Gpu& gpu) { return gpu.uuid.starts_with(name); });
      if (found == all.end()) break;  // CUDA ignores what follows
      nodes.push_back(found->node);
    }
    return nodes;
  }

 private:
  static std::string cpu_folder(int cpu) { return "sys/devices/system/cpu/cpu" + std::to_string(cpu); }

  /// The file's text without the newline at its end; empty if it cannot be read.
  std::string text(const std::string& name) const {
    std::ifstream file{root_ / name};
    std::string result{std::istreambuf_iterator<char>{file}, {}};
    while (result.ends_with('\n')) result.pop_back();
    return result;
  }

  static std::string uuid_of(const std::string& information) {
    const auto at = information.find("GPU-");
    return at == std::string::npos ? "" : information.substr(at, information.find('\n', at) - at);
  }

  CpuSet allowed_of(const CpuSet& cpus) const {
    CpuSet result;
    std::set_intersection(cpus.begin(), cpus.end(), allowed_.begin(), allowed_.end(),
                          std::inserter(result, result.end()));
    return result;
  }

  std::filesystem::path root_;
  CpuSet allowed_;
  std::map<int, CpuSet> nodes_;
};

}  // namespace ddpxx::detail
