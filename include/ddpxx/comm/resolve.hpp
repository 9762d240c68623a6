// ddpxx/comm/resolve.hpp — looks up a host's addresses by its name.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <netdb.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include <ddpxx/comm/socket_address.hpp>
#include <ddpxx/comm/within.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>

namespace ddpxx {

namespace detail {

/// The result of getaddrinfo, and its error code.
struct Resolved {
  std::vector<SocketAddress> addresses = {};
  int error = 0;
  int system_error = 0;  ///< errno, if `error` is EAI_SYSTEM.
};

inline Resolved look_up(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* first = nullptr;
  Resolved result;
  result.error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &first);
  if (result.error == EAI_SYSTEM) result.system_error = errno;
  if (result.error != 0) return result;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner{first, &freeaddrinfo};
  for (const addrinfo* entry = first; entry != nullptr; entry = entry->ai_next)
    if (entry->ai_family == AF_INET || entry->ai_family == AF_INET6)
      result.addresses.emplace_back(entry->ai_addr, entry->ai_addrlen);
  return result;
}

/// Why a name does not resolve.
inline std::string reason_of(const Resolved& failed) {
  if (failed.error == 0) return "it has no IPv4 or IPv6 address";
  const std::string reason = ::gai_strerror(failed.error);
  return failed.error == EAI_SYSTEM ? reason + ": " + std::strerror(failed.system_error) : reason;
}

/// Whether the name may resolve a moment later. The headless service of a Kubernetes job exists before its pods have
/// addresses; the answer is EAI_NODATA until then.
inline bool may_resolve_later(const Resolved& failed) {
  if (failed.error != EAI_SYSTEM)
    return failed.error == EAI_AGAIN || failed.error == EAI_NONAME || failed.error == EAI_NODATA;
  constexpr std::array kTransient = {EAGAIN,   EINTR,       ECONNREFUSED, ECONNRESET,   ETIMEDOUT,
                                     ENETDOWN, ENETUNREACH, EHOSTDOWN,    EHOSTUNREACH, ENFILE};
  return std::ranges::find(kTransient, failed.system_error) != kTransient.end();
}

/// When to give up a name that does not resolve: a misspelt one should not cost the whole time, but in Kubernetes a
/// pod's name resolves only when the pod runs, which may take minutes.
inline std::chrono::steady_clock::time_point end_of_look_ups(std::chrono::steady_clock::time_point deadline) {
  if (environment("KUBERNETES_SERVICE_HOST")) return deadline;
  return std::min(deadline, std::chrono::steady_clock::now() + std::chrono::seconds{30});
}

/// Starts a look-up on a thread of its own, which goes on alone if its result is not waited for.
template <class LookUp>
std::future<Resolved> start_look_up(const LookUp& look_up_once) {
  const auto task = std::make_shared<std::packaged_task<Resolved()>>(look_up_once);
  auto result = task->get_future();
  within(std::chrono::steady_clock::now(), [task] {
    (*task)();
    return true;
  });
  return result;
}

/// Does what `resolve` does with the function `look_up_once`, which returns a `Resolved`.
template <class LookUp>
std::vector<SocketAddress> resolve_by(const LookUp& look_up_once, const std::string& host,
                                      std::chrono::steady_clock::time_point deadline,
                                      const std::function<void(const std::string& reason)>& still_trying) {
  using Clock = std::chrono::steady_clock;
  const auto until = end_of_look_ups(deadline);
  std::string reason = "the name server does not answer";
  const auto tell = [&] {
    if (still_trying) still_trying("its name does not resolve: " + reason);
  };
  const auto soon = [&] { return std::min(until, Clock::now() + std::chrono::milliseconds{500}); };
  do {
    auto result = start_look_up(look_up_once);
    while (result.wait_until(soon()) == std::future_status::timeout && Clock::now() < until) tell();
    if (result.wait_for(std::chrono::seconds{0}) == std::future_status::timeout) break;
    const auto resolved = result.get();
    if (!resolved.addresses.empty()) return resolved.addresses;
    reason = reason_of(resolved);
    if (!may_resolve_later(resolved)) break;
    tell();
    std::this_thread::sleep_until(soon());
  } while (Clock::now() < until);
  throw Error{Errc::peer, "the host name \"" + harmless(host) + "\" does not resolve: " + reason +
                              "; check the name, or give the IP address"};
}

}  // namespace detail

/// The addresses that `host` resolves to. It is looked up again for half a minute, or until `deadline`: a name server
/// may fail for a moment, and the name of a Kubernetes service comes with the service. Meanwhile `still_trying` gets
/// the reason, about every half a second; an exception that it throws ends the wait.
/// Errors  `peer` when the name does not resolve.
inline std::vector<SocketAddress> resolve(const std::string& host, std::uint16_t port,
                                          std::chrono::steady_clock::time_point deadline,
                                          const std::function<void(const std::string& reason)>& still_trying = {}) {
  return detail::resolve_by([host, port] { return detail::look_up(host, port); }, host, deadline, still_trying);
}

}  // namespace ddpxx
