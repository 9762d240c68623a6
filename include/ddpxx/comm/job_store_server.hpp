// ddpxx/comm/job_store_server.hpp — the key-value store that the processes of one job share.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ddpxx/comm/keep_alive.hpp>
#include <ddpxx/comm/secret.hpp>
#include <ddpxx/comm/socket_address.hpp>
#include <ddpxx/comm/store_client.hpp>
#include <ddpxx/comm/store_credentials.hpp>
#include <ddpxx/comm/store_hello.hpp>
#include <ddpxx/comm/store_limits.hpp>
#include <ddpxx/comm/store_requests.hpp>
#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/poll_timeout.hpp>

namespace ddpxx {

/// Serves the store on one thread until it is destroyed. The thread has the signal mask of the thread that makes the
/// server. Data of clients is never printed.
class JobStoreServer {
 public:
  /// Gets a sentence about the first process that was refused; called once, in the server's thread. It must not wait:
  /// meanwhile the store answers no client.
  using Warn = std::function<void(const std::string&)>;

  /// Serves on `listeners`, sockets that listen already.
  /// Errors  `config` for a token or a run id that is too long; `peer` when the system gives no thread or descriptor.
  JobStoreServer(std::vector<Descriptor> listeners, StoreCredentials credentials, StoreLimits limits = {},
                 Warn warn = {});
  /// Serves a second, empty store at the same sockets, to the clients with these credentials; the former second store
  /// ends, and so do the connections to it. The agents of a run have the first store, and the ranks of each of its
  /// rounds the second one. The token must differ from that of the first store.
  /// Errors  as the constructor.
  void replace_second_store(StoreCredentials credentials);

  JobStoreServer(const JobStoreServer&) = delete;
  JobStoreServer& operator=(const JobStoreServer&) = delete;
  ~JobStoreServer() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Id = std::uint64_t;

  /// A store with the credentials of its clients.
  struct Served {
    Served(StoreCredentials of, const StoreLimits& limits, detail::StoreClients& clients, const Descriptor& epoll)
        : credentials{std::move(of)}, requests{limits, clients, epoll} {}

    StoreCredentials credentials;
    detail::StoreRequests requests;
  };

  static constexpr Id kStop = 0, kReplace = 1, kFirstListener = 2;
  static constexpr std::chrono::milliseconds kPauseWithoutDescriptors{100};
  void serve();
  /// Makes the second store that another thread has asked for.
  void replace();
  /// The store of an accepted client.
  detail::StoreRequests& requests_of(const detail::StoreClient& client) { return stores_[client.store]->requests; }
  void watch(int fd, Id id, std::uint32_t events, int operation) const {
    detail::watch_by_epoll(epoll_, fd, id, events, operation);
  }
  int next_timeout() const;
  void keep_deadlines();
  void accept_from(std::size_t listener);
  void pause_accepting();
  void handle(Id id, std::uint32_t events);
  /// Reads the hello of a newcomer; returns false if the connection must be closed.
  bool greet(detail::StoreClient& client);
  /// Warns of the first process that does not belong to the job.
  void note_stranger(const detail::StoreClient& client, const char* why);
  void close(Id id);

  /// What another thread asks the server's thread to do.
  struct Replacement {
    StoreCredentials credentials;
    std::promise<void> done;
  };

  std::vector<Descriptor> listeners_;
  StoreLimits limits_;
  Warn warn_;
  bool warned_ = false;
  Descriptor epoll_, stop_, replace_;
  detail::StoreClients clients_;
  std::array<std::optional<Served>, 2> stores_;
  std::mutex mutex_;
  std::optional<Replacement> replacement_;  // guarded by the mutex
  std::set<Id> newcomers_;                  // connections without a hello; the lowest id is the oldest
  Id next_id_ = 0;
  std::optional<Clock::time_point> accept_again_;
  std::thread thread_;
};

inline JobStoreServer::JobStoreServer(std::vector<Descriptor> listeners, StoreCredentials credentials,
                                      StoreLimits limits, Warn warn)
    : listeners_{std::move(listeners)},
      limits_{detail::within_descriptors(limits)},
      warn_{std::move(warn)},
      epoll_{::epoll_create1(EPOLL_CLOEXEC)},
      stop_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)},
      replace_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)},
      next_id_{kFirstListener + listeners_.size()} {
  check(credentials);
  stores_[0].emplace(std::move(credentials), limits, clients_, epoll_);
  if (!epoll_ || !stop_ || !replace_)
    throw Error{Errc::peer,
                "cannot serve the job's store: " + std::string{std::strerror(errno)} + " (limit: ulimit -n)"};
  watch(stop_.get(), kStop, EPOLLIN, EPOLL_CTL_ADD);
  watch(replace_.get(), kReplace, EPOLLIN, EPOLL_CTL_ADD);
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    const int fd = listeners_[i].get();
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    watch(fd, kFirstListener + i, EPOLLIN, EPOLL_CTL_ADD);
  }
  try {
    thread_ = std::thread{[this] { serve(); }};
  } catch (const std::exception& cause) {
    throw Error{Errc::peer, "cannot serve the job's store: no thread (limit: ulimit -u)"}.with("cause", cause.what());
  }
}

inline void JobStoreServer::replace_second_store(StoreCredentials credentials) {
  check(credentials);
  std::future<void> done;
  {
    const std::lock_guard lock{mutex_};
    replacement_ = Replacement{std::move(credentials), {}};
    done = replacement_->done.get_future();
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(replace_.get(), &one, sizeof one);
  done.get();
}

inline void JobStoreServer::replace() {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto size = ::read(replace_.get(), &count, sizeof count);
  std::optional<Replacement> wanted;
  {
    const std::lock_guard lock{mutex_};
    wanted.swap(replacement_);
  }
  if (!wanted) return;
  try {
    std::vector<Id> former;
    for (const auto& [id, client] : clients_)
      if (client.accepted && client.store == 1) former.push_back(id);
    for (const Id id : former) close(id);
    stores_[1].reset();
    stores_[1].emplace(std::move(wanted->credentials), limits_, clients_, epoll_);
    wanted->done.set_value();
  } catch (const std::exception&) {  // no memory
    wanted->done.set_exception(std::current_exception());
  }
}

inline void JobStoreServer::serve() {
  std::array<epoll_event, 64> events{};
  while (true) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), next_timeout());
    for (int i = 0; i < count; ++i) {
      const auto& event = events[static_cast<std::size_t>(i)];
      const Id id = event.data.u64;
      if (id == kStop) return;
      if (id == kReplace) {
        replace();
        continue;
      }
      try {
        if (id < kFirstListener + listeners_.size())
          accept_from(id - kFirstListener);
        else
          handle(id, event.events);
      } catch (const std::exception&) {  // a malformed message, or no memory: only this connection is closed
        close(id);
      }
    }
    try {
      keep_deadlines();
    } catch (const std::exception&) {  // no memory for an answer: the client has its own time limit
    }
  }
}

inline int JobStoreServer::next_timeout() const {
  std::optional<Clock::time_point> next = accept_again_;
  const auto consider = [&](Clock::time_point time) { next = next ? std::min(*next, time) : time; };
  if (!newcomers_.empty()) consider(clients_.at(*newcomers_.begin()).connected + limits_.hello_time);
  for (const auto& store : stores_)
    if (const auto deadline = store ? store->requests.next_deadline() : std::nullopt) consider(*deadline);
  return next ? poll_timeout(*next) : -1;
}

inline void JobStoreServer::keep_deadlines() {
  const auto now = Clock::now();
  if (accept_again_ && *accept_again_ <= now) {
    accept_again_.reset();
    for (std::size_t i = 0; i < listeners_.size(); ++i)
      watch(listeners_[i].get(), kFirstListener + i, EPOLLIN, EPOLL_CTL_MOD);
  }
  while (!newcomers_.empty() && clients_.at(*newcomers_.begin()).connected + limits_.hello_time <= now)
    close(*newcomers_.begin());
  for (auto& store : stores_)
    if (store) store->requests.keep_deadlines(now);
}

inline void JobStoreServer::accept_from(std::size_t listener) {
  constexpr int kAtOnce = 64;  // limits the number at a time, so that connected clients are served in between
  for (int i = 0; i < kAtOnce; ++i) {
    Descriptor socket{::accept4(listeners_[listener].get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (!socket) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      if (errno == EINTR || errno == ECONNABORTED) continue;
      // Without descriptors or memory the connection stays in the queue, and `epoll_wait` would report it again at
      // once.
      if (newcomers_.empty()) return pause_accepting();
      close(*newcomers_.begin());
      continue;
    }
    if (!newcomers_.empty() && newcomers_.size() >= limits_.newcomers) close(*newcomers_.begin());
    const Id id = next_id_++;
    if (limits_.keep_alive) set_keep_alive(socket.get(), *limits_.keep_alive);
    watch(socket.get(), id, EPOLLIN, EPOLL_CTL_ADD);
    clients_.emplace(id, detail::StoreClient{.id = id, .socket = std::move(socket), .connected = Clock::now()});
    newcomers_.insert(id);
  }
}

inline void JobStoreServer::pause_accepting() {
  accept_again_ = Clock::now() + kPauseWithoutDescriptors;
  for (std::size_t i = 0; i < listeners_.size(); ++i) watch(listeners_[i].get(), kFirstListener + i, 0, EPOLL_CTL_MOD);
}

inline void JobStoreServer::handle(Id id, std::uint32_t events) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;  // closed by an event before this one
  detail::StoreClient& client = found->second;
  if (!client.accepted) {
    if (!greet(client)) close(id);
    return;
  }
  if ((events & EPOLLOUT) != 0 && !client.send(epoll_)) return close(id);
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 &&
      !client.receive(limits_.message_bytes + detail::StoreMessage::kLengthBytes))
    return close(id);
  if (!requests_of(client).count_memory(client)) return close(id);
  requests_of(client).take(client);
}

inline bool JobStoreServer::greet(detail::StoreClient& client) {
  using State = detail::ReceivedHello::State;
  if (!client.receive(detail::read_hello(client.input).size)) return false;
  const auto hello = detail::read_hello(client.input);
  switch (hello.state) {
    case State::incomplete:
      return true;
    case State::malformed:
      return false;
    case State::foreign:
      note_stranger(client, "it is not a program of ddpxx");
      return false;
    case State::other_version: {
      note_stranger(client, "it has another version of ddpxx");
      const char byte = static_cast<char>(detail::HelloAnswer::other_version);
      ::send(client.socket.get(), &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      // Read the remaining bytes, because closing a connection with unread bytes would discard the answer.
      client.receive(detail::kMaxHelloBytes);
      return false;
    }
    case State::complete:
      break;
  }
  const auto knows_token = [&](const std::optional<Served>& store) {
    return store && detail::equal_secrets(hello.token, store->credentials.token);
  };
  auto verdict = detail::HelloAnswer::accepted;
  const auto* const store = std::find_if(stores_.begin(), stores_.end(), knows_token);
  if (store == stores_.end())
    verdict = detail::HelloAnswer::wrong_token;
  else if (hello.run_id != (*store)->credentials.run_id)
    verdict = detail::HelloAnswer::other_run;
  else if (clients_.size() - newcomers_.size() >= limits_.clients)
    verdict = detail::HelloAnswer::full;
  if (verdict == detail::HelloAnswer::wrong_token) note_stranger(client, "it does not know the token of this run");
  if (verdict == detail::HelloAnswer::other_run) note_stranger(client, "it belongs to another run");
  const char byte = static_cast<char>(verdict);
  if (::send(client.socket.get(), &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) return false;
  if (verdict != detail::HelloAnswer::accepted) return false;
  client.accepted = true;
  client.store = static_cast<std::size_t>(store - stores_.begin());
  client.input.clear();
  newcomers_.erase(client.id);
  return true;
}

inline void JobStoreServer::note_stranger(const detail::StoreClient& client, const char* why) {
  if (!warn_ || std::exchange(warned_, true)) return;
  try {
    warn_("a process at " + SocketAddress::of_peer(client.socket.get()).text() +
          " has connected to the store of this run and was refused, since " + why +
          "; further ones are refused without a message");
  } catch (const std::exception&) {  // it has gone, or there is no memory for the text
  }
}

inline void JobStoreServer::close(Id id) {
  auto client = clients_.extract(id);
  if (!client) return;
  newcomers_.erase(id);
  requests_of(client.mapped()).end(std::move(client.mapped()));
}

}  // namespace ddpxx
