// ddpxx/launch/plan/bind_ranks.hpp — chooses the processors on which each rank of a machine may run.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/plan/cpu_topology.hpp>

namespace ddpxx::detail {

/// Groups processors by `key(cpu)`, in the order of the keys.
template <class Key>
std::vector<CpuSet> grouped(const CpuSet& cpus, const Key& key) {
  std::map<int, CpuSet> groups;
  for (const int cpu : cpus) groups[key(cpu)].insert(cpu);
  std::vector<CpuSet> result;
  for (auto& [name, group] : groups) result.push_back(std::move(group));
  return result;
}

/// The NUMA node of each user of the machine's processors. The first users are the ranks; GPUs without a rank follow.
/// Rank r uses GPU r, or shares GPU r modulo their number; on a machine without GPUs the ranks are spread over the
/// nodes in blocks of equal size.
inline std::vector<int> nodes_of_users(const CpuTopology& topology, const std::vector<int>& gpu_nodes, int ranks) {
  const auto num_ranks = static_cast<std::size_t>(ranks);
  std::vector<int> users = gpu_nodes;
  if (!users.empty()) {
    while (users.size() < num_ranks) users.push_back(gpu_nodes[users.size() % gpu_nodes.size()]);
    return users;
  }
  std::vector<int> nodes;
  for (const auto& [node, cpus] : topology.nodes()) nodes.push_back(node);
  for (std::size_t rank = 0; rank < num_ranks; ++rank) users.push_back(nodes[rank * nodes.size() / num_ranks]);
  return users;
}

/// The processors for each rank of a machine.
/// Errors  `config` if a NUMA node has no allowed processors, or fewer cores than users that are to have some alone.
/// Source  torch.numa.binding, whose rules these are for ranks with a GPU each.
inline std::vector<CpuSet> bind_ranks(CpuBinding binding, int ranks, const CpuTopology& topology,
                                      const std::vector<int>& gpu_nodes) {
  const auto users = nodes_of_users(topology, gpu_nodes, ranks);
  std::vector<CpuSet> result;
  for (int rank = 0; rank < ranks; ++rank) {
    const int node = users[static_cast<std::size_t>(rank)];
    const auto found = topology.nodes().find(node);
    if (found == topology.nodes().end())
      throw Error{Errc::config, "--numa-binding: local rank " + std::to_string(rank) + " would run on NUMA node " +
                                    std::to_string(node) + (gpu_nodes.empty() ? "" : ", where its GPU is") +
                                    ", and ddpxx-run may use no processor of that node"};
    if (found->second.empty())
      throw Error{Errc::config,
                  "--numa-binding: the system does not tell which processors ddpxx-run may use: leave it out"};
    const CpuSet& cpus = found->second;
    const auto position = static_cast<std::size_t>(std::count(users.begin(), users.begin() + rank, node));
    const auto neighbours = static_cast<std::size_t>(std::count(users.begin(), users.end(), node));
    switch (binding) {
      case CpuBinding::node:
        result.push_back(cpus);
        break;
      case CpuBinding::socket: {
        CpuSet all;
        for (const auto& [other, of_other] : topology.nodes())
          if (topology.socket_of(*of_other.begin()) == topology.socket_of(*cpus.begin()))
            all.insert(of_other.begin(), of_other.end());
        result.push_back(std::move(all));
        break;
      }
      case CpuBinding::exclusive: {
        const auto cores = grouped(cpus, [&](int cpu) { return topology.core_of(cpu); });
        if (cores.size() < neighbours)
          throw Error{Errc::config, "--numa-binding exclusive: NUMA node " + std::to_string(node) + " has " +
                                        std::to_string(cores.size()) + " cores for " + std::to_string(neighbours) +
                                        (users.size() > gpu_nodes.size() ? " ranks" : " GPUs")};
        const std::size_t each = cores.size() / neighbours, more = cores.size() % neighbours;
        const std::size_t first = position * each + std::min(position, more);
        CpuSet own;
        for (std::size_t i = first; i < first + each + (position < more ? 1 : 0); ++i)
          own.insert(cores[i].begin(), cores[i].end());
        result.push_back(std::move(own));
        break;
      }
      case CpuBinding::core_complex: {
        auto caches = grouped(cpus, [&](int cpu) { return topology.cache_of(cpu); });
        std::stable_sort(caches.begin(), caches.end(),
                         [](const CpuSet& one, const CpuSet& other) { return one.size() > other.size(); });
        result.push_back(caches[position % caches.size()]);
        break;
      }
    }
  }
  return result;
}

}  // namespace ddpxx::detail
