// ddpxx/comm/rank_introduction.hpp — the facts that ranks exchange when they meet, and the addresses that follow from
// them.
#pragma once

#include <cstddef>
#include <map>
#include <netinet/in.h>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/comm/own_addresses.hpp>
#include <ddpxx/comm/secret.hpp>
#include <ddpxx/comm/socket_address.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/host_name.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/namespace_name.hpp>

namespace ddpxx {

/// The facts that each rank publishes. An address is empty if the rank has none of that family that other ranks can
/// reach.
struct RankIntroduction {
  int world_size = 1;
  std::string host =
      {};  ///< Equal for ranks that reach each other by a loopback address, and different for all others.
  std::string ipv4 = {}, ipv6 = {};
  int route = AF_UNSPEC;  ///< The address family by which this rank reaches the master, unless it does so by loopback.
  std::string device = "cpu";  ///< Kind of the device of its tensors, as LibTorch writes it.
  std::string backend = "Gloo";
  std::string gpu = {};     ///< UUID of the GPU that no other rank may use; empty if it needs none or does not know it.
  std::string memory = {};  ///< Equal for ranks that may share memory; empty if the rank is to use another backend.
  std::string mark = {};    ///< Random; tells two processes apart whose other facts are equal.

  const std::string& address(int family) const { return family == AF_INET6 ? ipv6 : ipv4; }
};

/// The facts of this rank. `local` is its own address on the connection to the store; `master` are the addresses where
/// ranks meet.
RankIntroduction introduction_of_this_rank(int world_size, bool one_host, const SocketAddress& local,
                                           std::span<const SocketAddress> master);

/// Convert the facts to one line of text, and back.
/// Errors  `peer` for a text that no rank of this version writes.
std::string to_text(const RankIntroduction& facts);
RankIntroduction parse_introduction(const std::string& text);

/// Errors  `peer` if two ranks use different kinds of devices or different backends, `config` if they use one GPU. The
///         text is equal on all ranks.
void check_devices(std::span<const RankIntroduction> ranks);

/// Returns the address family for connections between the ranks; equal on all ranks. Preferred is the family by which
/// the first rank outside rank 0's host reaches the master. If some rank has no address of that family, it is the other
/// family; AF_UNSPEC if the ranks have no family in common.
int common_family(std::span<const RankIntroduction> ranks);

/// The address by which the others reach this rank, number `rank`; empty if the ranks have no family in common.
std::string address_for_peers(std::span<const RankIntroduction> ranks, std::size_t rank);

namespace detail {

/// Names this host and the network namespace of this process, since a container may have its own.
inline std::string network_host() { return host_name() + '/' + namespace_name("net"); }

}  // namespace detail

/// Whether all ranks run on one host.
inline bool on_one_host(std::span<const RankIntroduction> ranks) {
  for (const auto& rank : ranks)
    if (rank.host != ranks.front().host) return false;
  return true;
}

/// Whether all ranks may share memory.
inline bool may_share_memory(std::span<const RankIntroduction> ranks) {
  for (const auto& rank : ranks)
    if (rank.memory.empty() || rank.memory != ranks.front().memory) return false;
  return true;
}

/// Whether some ranks are on one machine but do not see each other's processes, as in different containers, and would
/// share memory otherwise: all ranks are on the CPU with comm.backend=auto.
inline bool are_kept_apart_by_containers(std::span<const RankIntroduction> ranks) {
  std::map<std::string_view, std::string_view> namespaces;  // that of the first rank of each machine
  bool are_apart = false;
  for (const auto& rank : ranks) {
    const std::string_view memory{rank.memory};
    if (memory.empty()) return false;
    const auto boot = memory.substr(0, memory.find('/'));
    if (boot.empty()) continue;  // the rank does not know its machine
    are_apart = are_apart || namespaces.try_emplace(boot, memory).first->second != memory;
  }
  return are_apart;
}

/// Returns the number of ranks per host if there are at least two hosts, every host has the same number of ranks (at
/// least two), and the ranks of a host have consecutive numbers and may share memory. Otherwise returns 0.
inline int ranks_of_each_host(std::span<const RankIntroduction> ranks) {
  std::size_t count = 0;
  while (count < ranks.size() && ranks[count].memory == ranks.front().memory) ++count;
  if (count < 2 || count == ranks.size() || ranks.size() % count != 0) return 0;
  std::set<std::string_view> hosts;
  for (std::size_t first = 0; first < ranks.size(); first += count) {
    const auto host = ranks.subspan(first, count);
    if (!may_share_memory(host) || !hosts.insert(host.front().memory).second) return 0;
  }
  return static_cast<int>(count);
}

inline RankIntroduction introduction_of_this_rank(int world_size, bool one_host, const SocketAddress& local,
                                                  std::span<const SocketAddress> master) {
  RankIntroduction facts{.world_size = world_size, .mark = make_secret()};
  facts.host = detail::network_host();
  const auto usable = [&](const std::string& address) { return one_host || !is_loopback(address); };
  const auto offer = [&](int family, const std::string& address) {
    auto& mine = family == AF_INET6 ? facts.ipv6 : facts.ipv4;
    if (mine.empty() && usable(address)) mine = address;
  };
  // Offer the best address first: that of a working connection, that of a route to the master, any address.
  offer(local.family(), local.text());
  if (!facts.address(local.family()).empty()) facts.route = local.family();
  for (const auto& address : master) offer(address.family(), local_address_towards(address));
  if (!one_host)
    for (const auto& address : outward_addresses()) offer(address.family(), address.text());
  return facts;
}

inline std::string to_text(const RankIntroduction& facts) {
  const auto word = [](const std::string& text) {
    std::string result = text.empty() ? "-" : text;
    for (char& c : result)
      if (c == ' ' || c == '\n' || c == '\t') c = '_';
    return result;
  };
  std::ostringstream text;
  text << facts.world_size << ' ' << word(facts.host) << ' ' << word(facts.ipv4) << ' ' << word(facts.ipv6) << ' '
       << (facts.route == AF_INET6  ? 6
           : facts.route == AF_INET ? 4
                                    : 0)
       << ' ' << word(facts.device) << ' ' << word(facts.backend) << ' ' << word(facts.gpu) << ' ' << word(facts.memory)
       << ' ' << facts.mark;
  return std::move(text).str();
}

inline RankIntroduction parse_introduction(const std::string& text) {
  std::istringstream words{text};
  RankIntroduction facts;
  int route = 0;
  words >> facts.world_size >> facts.host >> facts.ipv4 >> facts.ipv6 >> route >> facts.device >> facts.backend >>
      facts.gpu >> facts.memory >> facts.mark;
  if (words.fail())
    throw Error{Errc::peer, "cannot read what a rank sent about itself, \"" + harmless(text.substr(0, 200)) +
                                "\": start the same version of ddpxx on all ranks"};
  for (auto* word : {&facts.host, &facts.ipv4, &facts.ipv6, &facts.gpu, &facts.memory})
    if (*word == "-") word->clear();
  facts.route = route == 6 ? AF_INET6 : route == 4 ? AF_INET : AF_UNSPEC;
  return facts;
}

inline void check_devices(std::span<const RankIntroduction> ranks) {
  const auto rank_of = [&](std::size_t rank) {
    const auto& host = ranks[rank].host;
    return "rank " + std::to_string(rank) + " on host " + harmless(host.substr(0, host.find('/')));
  };
  const auto device_of = [&](std::size_t rank) {
    return "device " + harmless(ranks[rank].device) + " over " + harmless(ranks[rank].backend);
  };
  std::map<std::pair<std::string_view, std::string_view>, std::size_t> users;  // of a host's GPU
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].device != ranks[0].device || ranks[rank].backend != ranks[0].backend)
      throw Error{
          Errc::peer,
          rank_of(0) + " uses " + device_of(0) + ", but " + rank_of(rank) + " uses " + device_of(rank) +
              ": give all ranks one kind of device and one comm.backend; device=auto takes the CPU where a host has "
              "no GPU that the program can use"};
    if (ranks[rank].gpu.empty()) continue;
    const auto [user, is_first] = users.try_emplace({ranks[rank].host, ranks[rank].gpu}, rank);
    if (!is_first)
      throw Error{Errc::config, rank_of(user->second) + " and rank " + std::to_string(rank) + " use one GPU, " +
                                    harmless(ranks[rank].gpu) +
                                    ": over NCCL each rank needs a GPU of its own; start at most one rank a GPU, or "
                                    "set comm.backend=gloo or device=cpu"};
  }
}

inline int common_family(std::span<const RankIntroduction> ranks) {
  const auto all_have = [&](int family) {
    for (const auto& rank : ranks)
      if (rank.address(family).empty()) return false;
    return true;
  };
  int preferred = AF_INET;
  for (const auto& rank : ranks)
    if (rank.route != AF_UNSPEC) {
      preferred = rank.route;
      if (rank.host != ranks.front().host) break;
    }
  const int other = preferred == AF_INET ? AF_INET6 : AF_INET;
  return all_have(preferred) ? preferred : all_have(other) ? other : AF_UNSPEC;
}

inline std::string address_for_peers(std::span<const RankIntroduction> ranks, std::size_t rank) {
  const int family = common_family(ranks);
  if (family == AF_UNSPEC) return {};
  const RankIntroduction& mine = ranks[rank];
  if (mine.route == AF_UNSPEC)
    // A rank on the master's host may reach the master only by loopback, and its host may have several addresses: use
    // the address on the route to a rank on another host.
    for (const auto& other : ranks)
      if (const auto peer = SocketAddress::parse(other.address(family));
          peer && other.route == family && other.host != mine.host)
        if (auto address = local_address_towards(*peer); !address.empty()) return address;
  return mine.address(family);
}

}  // namespace ddpxx
