// ddpxx/comm/host_address.hpp — names of hosts, the addresses of this one, and sockets that listen at them.
#pragma once

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

#include <ddpxx/comm/within.hpp>
#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>

namespace ddpxx {

/// One IPv4 or IPv6 address with a port.
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t length) : length_{length} {
    std::memcpy(&storage_, address, length);
  }

  /// Reads an address in figures; none for anything else, names included.
  static std::optional<SocketAddress> parse(const std::string& text, std::uint16_t port = 0) {
    sockaddr_in ipv4{};
    ipv4.sin_family = AF_INET;
    if (::inet_pton(AF_INET, text.c_str(), &ipv4.sin_addr) == 1)
      return SocketAddress{reinterpret_cast<const sockaddr*>(&ipv4), sizeof ipv4}.with_port(port);
    sockaddr_in6 ipv6{};
    ipv6.sin6_family = AF_INET6;
    if (::inet_pton(AF_INET6, text.c_str(), &ipv6.sin6_addr) == 1)
      return SocketAddress{reinterpret_cast<const sockaddr*>(&ipv6), sizeof ipv6}.with_port(port);
    return std::nullopt;
  }
  /// The address of this end of a socket.
  static SocketAddress of_socket(int fd) { return from(fd, ::getsockname); }
  /// The address of the other end.
  static SocketAddress of_peer(int fd) { return from(fd, ::getpeername); }

  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const noexcept { return length_; }
  int family() const noexcept { return storage_.ss_family; }

  std::uint16_t port() const noexcept {
    return ntohs(family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port
                                      : reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
  }
  SocketAddress with_port(std::uint16_t port) const {
    auto result = *this;
    if (family() == AF_INET6)
      reinterpret_cast<sockaddr_in6*>(&result.storage_)->sin6_port = htons(port);
    else
      reinterpret_cast<sockaddr_in*>(&result.storage_)->sin_port = htons(port);
    return result;
  }

  /// In figures, without the port; empty for no address.
  std::string text() const {
    std::array<char, NI_MAXHOST> name{};
    if (length_ == 0 || ::getnameinfo(get(), length_, name.data(), name.size(), nullptr, 0, NI_NUMERICHOST) != 0)
      return {};
    return name.data();
  }

  friend bool operator==(const SocketAddress& left, const SocketAddress& right) {
    return left.port() == right.port() && left.text() == right.text();
  }

 private:
  template <class Ask>
  static SocketAddress from(int fd, Ask ask) {
    SocketAddress result;
    socklen_t length = sizeof result.storage_;
    if (ask(fd, reinterpret_cast<sockaddr*>(&result.storage_), &length) == 0) result.length_ = length;
    return result;
  }

  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

/// How a place to connect to is written in errors; an IPv6 address stands in brackets.
inline std::string store_url(const std::string& host, std::uint16_t port) {
  const bool ipv6 = host.find(':') != std::string::npos;
  return "tcp://" + harmless(ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

inline bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

/// The addresses that `host` resolves to. It is looked up again for half a minute, or until `deadline`: a name server
/// may fail for a moment, and the name of a Kubernetes service comes with the service. Meanwhile `still_trying` gets
/// the reason, about every half a second; an exception that it throws ends the wait.
/// Errors  `peer` when the name does not resolve.
std::vector<SocketAddress> resolve(const std::string& host, std::uint16_t port,
                                   std::chrono::steady_clock::time_point deadline,
                                   const std::function<void(const std::string& reason)>& still_trying = {});

/// This host's address on the route to `peer`, by which peers there can connect to this host; empty if there is no
/// route. No packet is sent, because connecting a datagram socket only looks up the route.
inline std::string local_address_towards(const SocketAddress& peer) {
  const Descriptor socket{::socket(peer.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  if (!socket || ::connect(socket.get(), peer.get(), peer.length()) != 0) return {};
  return SocketAddress::of_socket(socket.get()).text();
}

/// The addresses of this host that other hosts can reach: those of interfaces that are up, without loopback addresses
/// and addresses that are valid on one link only.
std::vector<SocketAddress> outward_addresses();

/// The name of this host's interface with the address `address`, such as eth0; empty if there is none.
std::string interface_of(const std::string& address);

/// Sockets that listen at `port` for processes that connect to `host`: at those of its addresses that belong to this
/// host. If `other_hosts` must be able to connect although all of these are loopback addresses (Debian's "127.0.1.1
/// name"), also at the outward addresses. If none belongs to this host (a forwarded port), at all interfaces.
/// `still_trying` is that of `resolve`.
/// Errors  `peer` when the name does not resolve, or the port is taken ("port in use").
std::vector<Descriptor> listen_for(const std::string& host, std::uint16_t port, bool other_hosts,
                                   std::chrono::steady_clock::time_point deadline,
                                   const std::function<void(const std::string& reason)>& still_trying = {});

/// A socket that listens at 127.0.0.1, at a port that the system chooses.
/// Errors  `peer`.
Descriptor listen_on_loopback();

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

/// One address of an interface of this host that is up.
struct InterfaceAddress {
  std::string name;
  unsigned flags = 0;  ///< IFF_LOOPBACK and so on.
  SocketAddress address;
};

inline std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner{first, &freeifaddrs};
  std::vector<InterfaceAddress> result;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    result.push_back({entry->ifa_name, entry->ifa_flags, SocketAddress{entry->ifa_addr, length}});
  }
  return result;
}

/// A socket that listens at one address; empty with errno set if that fails.
inline Descriptor listen_at(const SocketAddress& address) {
  Descriptor socket{::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!socket) return {};
  const int on = 1;
  // Listens although ended connections still use the port.
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.family() == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  constexpr int kQueue = 4096;  // the system may allow less; a client that finds the queue full tries again
  if (::bind(socket.get(), address.get(), address.length()) == 0 && ::listen(socket.get(), kQueue) == 0) return socket;
  const int reason = errno;
  socket.close();
  errno = reason;
  return {};
}

}  // namespace detail

inline std::vector<SocketAddress> resolve(const std::string& host, std::uint16_t port,
                                          std::chrono::steady_clock::time_point deadline,
                                          const std::function<void(const std::string& reason)>& still_trying) {
  return detail::resolve_by([host, port] { return detail::look_up(host, port); }, host, deadline, still_trying);
}

inline std::vector<SocketAddress> outward_addresses() {
  std::vector<SocketAddress> result;
  for (const auto& [name, flags, address] : detail::interface_addresses()) {
    if ((flags & IFF_LOOPBACK) != 0) continue;
    const auto* ipv6 = reinterpret_cast<const sockaddr_in6*>(address.get());
    if (address.family() == AF_INET || !IN6_IS_ADDR_LINKLOCAL(&ipv6->sin6_addr)) result.push_back(address);
  }
  return result;
}

inline std::string interface_of(const std::string& address) {
  for (const auto& entry : detail::interface_addresses())
    if (entry.address.text() == address) return entry.name;
  return {};
}

inline std::vector<Descriptor> listen_for(const std::string& host, std::uint16_t port, bool other_hosts,
                                          std::chrono::steady_clock::time_point deadline,
                                          const std::function<void(const std::string& reason)>& still_trying) {
  const auto addresses = resolve(host, port, deadline, still_trying);
  std::vector<Descriptor> listeners;
  const auto listen = [&](const SocketAddress& address) {
    if (auto listener = detail::listen_at(address))
      listeners.push_back(std::move(listener));
    else if (errno == EADDRINUSE)
      throw Error{Errc::peer, "port in use: " + store_url(address.text(), port) +
                                  " is taken by another program; choose another port"};
    else if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT)
      throw Error{Errc::peer, "cannot listen at " + store_url(address.text(), port) + ": " + std::strerror(errno)};
  };
  std::vector<std::string> tried;  // getaddrinfo may give an address twice
  const auto listen_once = [&](const SocketAddress& address) {
    const auto text = address.text();
    if (std::find(tried.begin(), tried.end(), text) == tried.end()) listen(address);
    tried.push_back(text);
  };
  for (const auto& address : addresses) listen_once(address);
  const bool all_loopback = std::all_of(listeners.begin(), listeners.end(), [](const Descriptor& listener) {
    return is_loopback(SocketAddress::of_socket(listener.get()).text());
  });
  if (other_hosts && all_loopback && !listeners.empty())
    for (const auto& address : outward_addresses()) listen_once(address.with_port(port));
  if (listeners.empty()) {
    listen(*SocketAddress::parse("::", port));
    listen(*SocketAddress::parse("0.0.0.0", port));
  }
  return listeners;
}

inline Descriptor listen_on_loopback() {
  auto listener = detail::listen_at(*SocketAddress::parse("127.0.0.1"));
  if (!listener)
    throw Error{Errc::peer, "cannot listen on the loopback interface: " + std::string{std::strerror(errno)}};
  return listener;
}

}  // namespace ddpxx
