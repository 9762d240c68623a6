// ddpxx/comm/gloo.hpp — collectives over TCP between CPUs: the Gloo backend of LibTorch.
// LibTorch's wheel ships no gloo headers; `gloo_declarations/` then stands in for the few names that this needs.
#pragma once

#include <arpa/inet.h>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <sched.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/rendezvous.hpp>
#include <ddpxx/comm/thread_limit.hpp>

namespace ddpxx {

namespace detail {

/// The address of this host's interface that leads to `host`: what peers must be told to connect to.
/// Empty if the name does not resolve. No packet is sent: connecting a datagram socket only looks up the route.
inline std::string local_address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner{found, &freeaddrinfo};
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    const int socket = ::socket(entry->ai_family, SOCK_DGRAM, 0);
    if (socket < 0) continue;
    sockaddr_storage local{};
    socklen_t length = sizeof local;
    char name[NI_MAXHOST] = {};
    const bool known =
        ::connect(socket, entry->ai_addr, entry->ai_addrlen) == 0 &&
        ::getsockname(socket, reinterpret_cast<sockaddr*>(&local), &length) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&local), length, name, sizeof name, nullptr, 0, NI_NUMERICHOST) == 0;
    ::close(socket);
    if (known) return name;
  }
  return {};
}

inline bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

/// The first address of this host that other hosts can reach; empty if there is none. For a name of this host that
/// resolves to loopback, as Debian's /etc/hosts has it.
inline std::string outward_address() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner{first, &freeifaddrs};
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    char name[NI_MAXHOST] = {};
    if (getnameinfo(entry->ifa_addr, sizeof(sockaddr_in), name, sizeof name, nullptr, 0, NI_NUMERICHOST) == 0)
      return name;
  }
  return {};
}

/// Gloo writes to sockets whose peer may be gone, and that must become an error and not end the process. A program that
/// has chosen what to do about SIGPIPE keeps its choice.
inline void survive_broken_pipes() {
  struct ::sigaction chosen {};
  if (::sigaction(SIGPIPE, nullptr, &chosen) == 0 && chosen.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
}

/// While it lives, threads that this one starts do not push a running thread off its core when they wake up. Gloo's own
/// thread tries for the lock of a connection again and again: one that has taken the core from the holder of that lock
/// spins until its time slice is over, three milliseconds, where one core is all that a rank has.
class StartsPatientThreads {
 public:
  StartsPatientThreads() : changed_{::sched_getscheduler(0) == SCHED_OTHER && set(SCHED_BATCH)} {}
  StartsPatientThreads(const StartsPatientThreads&) = delete;
  StartsPatientThreads& operator=(const StartsPatientThreads&) = delete;
  ~StartsPatientThreads() {
    if (changed_) set(SCHED_OTHER);
  }

 private:
  static bool set(int policy) {
    const ::sched_param normal{};
    return ::sched_setscheduler(0, policy, &normal) == 0;  // of this thread
  }

  bool changed_;
};

/// How Gloo is to reach the ranks of `meeting`; this starts its thread.
inline c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> gloo_options(const Meeting& meeting) {
  const StartsPatientThreads patient;
  auto address = local_address_towards(meeting.host);
  if (!meeting.one_host && is_loopback(address)) address = outward_address();
  // The time to join governs the connecting as well: a rank may die between the meeting and here.
  if (address.empty() || std::getenv("GLOO_SOCKET_IFNAME") != nullptr)
    return c10d::ProcessGroupGloo::Options::create_default(meeting.join_timeout);
  auto options = c10d::ProcessGroupGloo::Options::create(meeting.join_timeout);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
  return options;
}

}  // namespace detail

/// Connects the ranks that have met in `meeting` over Gloo. From now on the process ignores SIGPIPE.
/// Ranks   Collective.
/// Errors  `peer` if they cannot reach each other, where GLOO_SOCKET_IFNAME overrides the interface that is chosen, or
///         if the system has no more threads.
inline Group connect_gloo(const Meeting& meeting) {
  detail::survive_broken_pipes();
  check_threads(3, "a group over Gloo");  // one of its device, two that work
  try {
    auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(meeting.store, meeting.rank, meeting.world_size,
                                                               detail::gloo_options(meeting));
    backend->setTimeout(meeting.collective_timeout);
    return Group{std::move(backend), meeting.store, at::kCPU,
                 [meeting](c10::intrusive_ptr<c10d::Store> store, int rank, int size) {
                   return connect_gloo(meeting.part(std::move(store), rank, size));
                 }};
  } catch (const std::exception& cause) {
    throw Error{Errc::peer, (meeting.checked ? "the ranks met at " + meeting.host + " but"
                                             : "a rank never came to " + meeting.host + ", or the ranks") +
                                " cannot reach each other over Gloo: a rank died meanwhile, a firewall is between "
                                "them, or GLOO_SOCKET_IFNAME must name the interface to use"}
        .with("rank", meeting.rank)
        .with("cause", first_line(cause));
  }
}

}  // namespace ddpxx
