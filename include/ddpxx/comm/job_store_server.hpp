// ddpxx/comm/job_store_server.hpp — the key-value store that the processes of one job share.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <fcntl.h>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <ddpxx/comm/job_store_protocol.hpp>
#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx {

namespace detail {

/// Thrown if a request exceeds a limit of the store; the reason is sent to the client.
struct RefusedRequest : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace detail

/// The limits of the server. A client that exceeds one loses its connection, or its request is refused; other clients
/// are not affected.
struct StoreLimits {
  std::chrono::milliseconds hello_time{5'000};  ///< Time from the connection to the end of its hello.
  std::size_t newcomers = 256;   ///< Number of connections without a hello; when there are more, the oldest is closed.
  std::size_t clients = 65'536;  ///< Number of connections after their hello; fewer if `ulimit -n` is low.
  std::size_t key_bytes = 4U << 10U;
  std::size_t value_bytes = 16U << 20U;
  std::size_t message_bytes = 64U << 20U;  ///< Size of one request or one answer.
  std::size_t wait_keys = 131'072;         ///< Number of keys of one wait: one for each rank of the largest world.
  std::size_t will_keys = 16;              ///< Number of keys that one client asks to set when its connection ends.
  std::size_t total_bytes = 1U << 30U;     ///< Size of all keys, values and clients' data beyond a small buffer.
};

/// Serves the store on one thread until it is destroyed. The thread has the signal mask of the thread that makes the
/// server. Data of clients is never printed.
class JobStoreServer {
 public:
  /// Serves on `listeners`, sockets that listen already.
  /// Errors  `config` for a token or a run id that is too long; `peer` when the system gives no thread or descriptor.
  JobStoreServer(std::vector<Descriptor> listeners, StoreCredentials credentials, StoreLimits limits = {});
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

  static constexpr std::size_t kBytesPerKey = 64;  // memory of a key in addition to its bytes

  /// A request that is answered later: when its keys are set, when `unless` is set, or when its time is over.
  struct Held {
    std::vector<std::string> keys = {};
    std::size_t next = 0;     ///< The first key that may be missing.
    std::string unless = {};  ///< Empty for none.
    Clock::time_point until = {};
    bool wants_value = false;  ///< Answers with the value of the only key.
    std::size_t bytes = 0;     ///< Size of its keys.

    void add(std::string_view key) {
      keys.emplace_back(key);
      bytes += key.size() + kBytesPerKey;
    }
  };
  struct Client {
    Descriptor socket;
    bool accepted = false;
    Clock::time_point connected = {};
    std::string input = {};
    std::string output = {};
    std::size_t sent = 0;
    std::uint32_t events = EPOLLIN;
    std::optional<Held> held = {};
    std::vector<std::string> will_keys = {};
    std::string will_value = {};
    std::size_t counted_bytes = 0;  ///< Its part of `total_bytes_`.
  };

  static constexpr std::size_t kFreeBytes = 4U << 10U;  // bytes of each client's buffers that are not counted
  static constexpr Id kStop = 0, kFirstListener = 1;
  static constexpr std::chrono::milliseconds kPauseWithoutDescriptors{100};
  void serve();
  void watch(int fd, Id id, std::uint32_t events, int operation) const {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    ::epoll_ctl(epoll_.get(), operation, fd, &event);
  }
  int next_timeout() const;
  void keep_deadlines();
  void accept_from(std::size_t listener);
  void drop_oldest_newcomer();
  void pause_accepting();
  void handle(Id id, std::uint32_t events);
  /// Reads the received bytes, up to `most`; returns false if the connection must be closed.
  bool receive(Client& client, std::size_t most) const;
  /// Reads the hello of a newcomer; returns false if the connection must be closed.
  bool greet(Client& client);
  /// Answers the received request if it is complete.
  void answer_request(Id id, Client& client);
  void answer(Id id, Client& client, std::string_view request);
  void reply(Id id, Client& client, detail::StoreMessage message);
  /// Sends the pending output; returns false if the connection must be closed.
  bool send(Id id, Client& client) const;
  void close(Id id);
  /// Updates `total_bytes_` with the size of the data that is kept for `client`.
  void count(Client& client);

  void hold(Id id, Client& client, Held held);
  /// Answers a held request if that is possible now; returns false if it must wait longer.
  bool settle(Id id, Client& client);
  void register_held(Id id, const Held& held);
  void release_held(Id id, Client& client);
  void reply_late(Id id, Client& client);
  void key_came(const std::string& key);

  void check_size(std::string_view key, std::string_view value) const {
    if (key.empty() || key.size() > limits_.key_bytes) throw detail::RefusedRequest{"the key is empty or too long"};
    if (value.size() > limits_.value_bytes) throw detail::RefusedRequest{"the value is too large"};
  }
  void put(const std::string& key, std::string value);
  const std::string* find(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }

  std::vector<Descriptor> listeners_;
  StoreCredentials credentials_;
  StoreLimits limits_;
  Descriptor epoll_, stop_;
  std::unordered_map<Id, Client> clients_;
  std::deque<Id> newcomers_;  // oldest first; may contain connections that have ended or have sent their hello
  std::size_t num_newcomers_ = 0;
  Id next_id_ = 0;
  std::optional<Clock::time_point> accept_again_;
  std::unordered_map<std::string, std::string> values_;
  std::size_t total_bytes_ = 0;
  std::unordered_map<std::string, std::unordered_set<Id>> waiting_;  // clients by the key that they wait for
  std::set<std::pair<Clock::time_point, Id>> held_until_;
  std::thread thread_;
};

namespace detail {

/// Whether two secrets are equal; the time depends only on their lengths.
inline bool equal_secrets(std::string_view left, std::string_view right) {
  if (left.size() != right.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < left.size(); ++i)
    difference |= static_cast<unsigned>(static_cast<unsigned char>(left[i]) ^ static_cast<unsigned char>(right[i]));
  return difference == 0;
}

/// Returns `wanted`, but at most `eighths` / 8 of the descriptors that this process may have.
inline std::size_t connections_that_fit(std::size_t wanted, std::size_t eighths) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  return std::min(wanted, std::max<std::size_t>(limit.rlim_cur / 8 * eighths, 1));
}

}  // namespace detail

inline JobStoreServer::JobStoreServer(std::vector<Descriptor> listeners, StoreCredentials credentials,
                                      StoreLimits limits)
    : listeners_{std::move(listeners)},
      credentials_{std::move(credentials)},
      limits_{limits},
      epoll_{::epoll_create1(EPOLL_CLOEXEC)},
      stop_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)},
      next_id_{kFirstListener + listeners_.size()} {
  check(credentials_);
  if (!epoll_ || !stop_)
    throw Error{Errc::peer,
                "cannot serve the job's store: " + std::string{std::strerror(errno)} + " (limit: ulimit -n)"};
  // Connections without a hello use at most a quarter of the descriptors, clients five eighths; the rest is for the
  // process itself.
  limits_.newcomers = detail::connections_that_fit(limits_.newcomers, 2);
  limits_.clients = detail::connections_that_fit(limits_.clients, 5);
  watch(stop_.get(), kStop, EPOLLIN, EPOLL_CTL_ADD);
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

inline void JobStoreServer::serve() {
  std::array<epoll_event, 64> events{};
  while (true) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), next_timeout());
    for (int i = 0; i < count; ++i) {
      const auto& event = events[static_cast<std::size_t>(i)];
      const Id id = event.data.u64;
      if (id == kStop) return;
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
  if (!newcomers_.empty()) {
    const auto oldest = clients_.find(newcomers_.front());
    consider(oldest == clients_.end() ? Clock::now() : oldest->second.connected + limits_.hello_time);
  }
  if (!held_until_.empty()) consider(held_until_.begin()->first);
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now()).count();
  return static_cast<int>(std::clamp<decltype(left)>(left, 0, 1'000'000));
}

inline void JobStoreServer::keep_deadlines() {
  const auto now = Clock::now();
  if (accept_again_ && *accept_again_ <= now) {
    accept_again_.reset();
    for (std::size_t i = 0; i < listeners_.size(); ++i)
      watch(listeners_[i].get(), kFirstListener + i, EPOLLIN, EPOLL_CTL_MOD);
  }
  while (!newcomers_.empty()) {
    const auto oldest = clients_.find(newcomers_.front());
    const bool settled = oldest == clients_.end() || oldest->second.accepted;
    if (!settled && now < oldest->second.connected + limits_.hello_time) break;
    const Id id = newcomers_.front();
    newcomers_.pop_front();
    if (!settled) close(id);
  }
  while (!held_until_.empty() && held_until_.begin()->first <= now) {
    const Id id = held_until_.begin()->second;
    reply_late(id, clients_.at(id));
  }
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
      if (num_newcomers_ == 0) return pause_accepting();
      drop_oldest_newcomer();
      continue;
    }
    if (num_newcomers_ >= limits_.newcomers) drop_oldest_newcomer();
    const Id id = next_id_++;
    watch(socket.get(), id, EPOLLIN, EPOLL_CTL_ADD);
    clients_.emplace(id, Client{.socket = std::move(socket), .connected = Clock::now()});
    newcomers_.push_back(id);
    ++num_newcomers_;
  }
}

inline void JobStoreServer::drop_oldest_newcomer() {
  while (!newcomers_.empty()) {
    const Id id = newcomers_.front();
    newcomers_.pop_front();
    const auto found = clients_.find(id);
    if (found == clients_.end() || found->second.accepted) continue;
    return close(id);
  }
}

inline void JobStoreServer::pause_accepting() {
  accept_again_ = Clock::now() + kPauseWithoutDescriptors;
  for (std::size_t i = 0; i < listeners_.size(); ++i) watch(listeners_[i].get(), kFirstListener + i, 0, EPOLL_CTL_MOD);
}

inline void JobStoreServer::handle(Id id, std::uint32_t events) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;  // closed by an event before this one
  Client& client = found->second;
  if (!client.accepted) {
    if (!greet(client)) close(id);
    return;
  }
  if ((events & EPOLLOUT) != 0 && !send(id, client)) return close(id);
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 &&
      !receive(client, limits_.message_bytes + detail::StoreMessage::kLengthBytes))
    return close(id);
  count(client);
  if (client.counted_bytes > 0 && total_bytes_ > limits_.total_bytes) return close(id);
  answer_request(id, client);
}

inline bool JobStoreServer::receive(Client& client, std::size_t most) const {
  constexpr std::size_t kPiece = 64U << 10U;
  if (client.input.size() >= most) return false;
  std::array<char, kPiece> piece;
  const auto count = ::recv(client.socket.get(), piece.data(), std::min(most - client.input.size(), kPiece), 0);
  if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  client.input.append(piece.data(), static_cast<std::size_t>(count));
  return count > 0;
}

inline bool JobStoreServer::greet(Client& client) {
  const auto length = [&](std::size_t place) {
    return std::size_t{detail::read_number<std::uint16_t>(std::string_view{client.input}.substr(place, 2))};
  };
  const std::size_t header = detail::kHelloHeaderBytes, magic = detail::kHelloMagic.size();
  std::size_t wanted = header;
  if (client.input.size() >= header) wanted += length(magic) + length(magic + 2);
  // Do not read bytes beyond the hello.
  if (!receive(client, wanted)) return false;
  const std::string_view input{client.input};
  const auto name = detail::kHelloMagic.substr(0, magic - 1);  // the version follows
  if (input.substr(0, name.size()) != name.substr(0, input.size())) return false;
  if (input.size() < header) return true;
  if (input[magic - 1] != detail::kHelloMagic.back()) {
    const char byte = static_cast<char>(detail::HelloAnswer::other_version);
    ::send(client.socket.get(), &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    // Read the remaining bytes, because closing a connection with unread bytes would discard the answer.
    receive(client, detail::kMaxHelloBytes);
    return false;
  }
  const std::size_t token_bytes = length(magic), run_id_bytes = length(magic + 2);
  if (token_bytes > kMaxCredentialBytes || run_id_bytes > kMaxCredentialBytes) return false;
  if (input.size() < header + token_bytes + run_id_bytes) return true;

  auto verdict = detail::HelloAnswer::accepted;
  if (!detail::equal_secrets(input.substr(header, token_bytes), credentials_.token))
    verdict = detail::HelloAnswer::wrong_token;
  else if (input.substr(header + token_bytes) != credentials_.run_id)
    verdict = detail::HelloAnswer::other_run;
  else if (clients_.size() - num_newcomers_ >= limits_.clients)
    verdict = detail::HelloAnswer::full;
  const char byte = static_cast<char>(verdict);
  if (::send(client.socket.get(), &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) return false;
  if (verdict != detail::HelloAnswer::accepted) return false;
  client.accepted = true;
  client.input.clear();
  --num_newcomers_;
  return true;
}

inline void JobStoreServer::answer_request(Id id, Client& client) {
  constexpr std::size_t kLength = detail::StoreMessage::kLengthBytes;
  if (client.input.empty()) return;
  // Clients must wait for each answer. A client that does not could occupy this thread and make answers pile up.
  if (client.held || !client.output.empty()) throw detail::MalformedMessage{};
  if (client.input.size() < kLength) return;
  const std::size_t size = detail::read_number<std::uint32_t>(std::string_view{client.input}.substr(0, kLength));
  if (size > limits_.message_bytes || client.input.size() > kLength + size) throw detail::MalformedMessage{};
  if (client.input.size() < kLength + size) return;
  const auto request = std::exchange(client.input, {});
  count(client);
  try {
    answer(id, client, std::string_view{request}.substr(kLength));
  } catch (const detail::RefusedRequest& refused) {
    reply(id, client, detail::StoreMessage{detail::StoreStatus::refused}.text(refused.what()));
  }
}

inline void JobStoreServer::count(Client& client) {
  std::size_t bytes = client.input.capacity() + client.output.capacity() + client.will_value.size();
  for (const auto& key : client.will_keys) bytes += key.size() + kBytesPerKey;
  if (client.held) bytes += client.held->bytes;
  bytes = bytes > kFreeBytes ? bytes - kFreeBytes : 0;
  total_bytes_ = total_bytes_ - client.counted_bytes + bytes;
  client.counted_bytes = bytes;
}

inline void JobStoreServer::answer(Id id, Client& client, std::string_view request) {
  using detail::StoreMessage, detail::StoreOperation, detail::StoreStatus;
  detail::StoreMessageReader reader{request};
  const auto operation = static_cast<StoreOperation>(reader.code());
  const auto key = [&] { return std::string{reader.text()}; };
  const auto until = [&] {
    constexpr std::int64_t kMaxTime = 10'000'000'000;  // milliseconds; more could overflow the clock
    return Clock::now() + std::chrono::milliseconds{std::clamp<std::int64_t>(reader.number(), 0, kMaxTime)};
  };
  StoreMessage done{StoreStatus::done};
  switch (operation) {
    case StoreOperation::set: {
      const auto name = key();
      put(name, std::string{reader.text()});
      break;
    }
    case StoreOperation::get: {
      Held held{.until = until(), .wants_value = true};
      held.add(key());
      return hold(id, client, std::move(held));
    }
    case StoreOperation::add: {
      const auto name = key();
      const auto amount = reader.number();
      std::int64_t value = 0;
      if (const auto* old = find(name)) {
        const auto [end, status] = std::from_chars(old->data(), old->data() + old->size(), value);
        if (status != std::errc{} || end != old->data() + old->size())
          throw detail::RefusedRequest{"the value to add to is not a number"};
      }
      if (__builtin_add_overflow(value, amount, &value)) throw detail::RefusedRequest{"the sum is too large"};
      put(name, std::to_string(value));
      done.number(value);
      break;
    }
    case StoreOperation::append: {
      const auto name = key();
      const auto* old = find(name);
      auto value = old ? *old : std::string{};
      put(name, value.append(reader.text()));
      break;
    }
    case StoreOperation::compare_set: {
      const auto name = key();
      const auto expected = reader.text(), desired = reader.text();
      const auto* old = find(name);
      // A missing key equals an empty text, as in c10d's stores.
      if (old ? *old == expected : expected.empty()) {
        put(name, std::string{desired});
        done.text(desired);
      } else {
        done.text(old ? std::string_view{*old} : expected);
      }
      break;
    }
    case StoreOperation::check: {
      bool all = true;
      while (!reader.at_end()) all = find(key()) != nullptr && all;
      done.number(all ? 1 : 0);
      break;
    }
    case StoreOperation::wait: {
      Held held{.until = until()};
      held.unless = key();
      while (!reader.at_end()) {
        held.add(reader.text());
        if (held.keys.size() > limits_.wait_keys) throw detail::RefusedRequest{"too many keys to wait for"};
      }
      return hold(id, client, std::move(held));
    }
    case StoreOperation::multi_get: {
      while (!reader.at_end()) {
        const auto* value = find(key());
        if (value == nullptr) throw detail::RefusedRequest{"a key is missing"};
        if (done.size() + value->size() > limits_.message_bytes)
          throw detail::RefusedRequest{"the values are too large for one answer"};
        done.text(*value);
      }
      break;
    }
    case StoreOperation::multi_set: {
      while (!reader.at_end()) {
        const auto name = key();
        put(name, std::string{reader.text()});
      }
      break;
    }
    case StoreOperation::remove: {
      const auto found = values_.find(key());
      done.number(found == values_.end() ? 0 : 1);
      if (found == values_.end()) break;
      total_bytes_ -= found->first.size() + found->second.size() + kBytesPerKey;
      values_.erase(found);
      break;
    }
    case StoreOperation::count_keys:
      done.number(static_cast<std::int64_t>(values_.size()));
      break;
    case StoreOperation::leave_will: {
      std::string value{reader.text()};
      std::vector<std::string> keys;
      while (!reader.at_end()) {
        check_size(keys.emplace_back(key()), value);
        if (keys.size() > limits_.will_keys) throw detail::RefusedRequest{"too many keys to set at the end"};
      }
      if (total_bytes_ + value.size() > limits_.total_bytes) throw detail::RefusedRequest{"the store is full"};
      client.will_keys = std::move(keys);
      client.will_value = std::move(value);
      break;  // answer() updates the count
    }
    default:
      throw detail::MalformedMessage{};
  }
  reply(id, client, std::move(done));
}

inline void JobStoreServer::reply(Id id, Client& client, detail::StoreMessage message) {
  if (message.size() > kFreeBytes && total_bytes_ + message.size() > limits_.total_bytes)
    message = detail::StoreMessage{detail::StoreStatus::refused}.text("the store is full");
  client.output += std::move(message).finish();
  // A lost connection causes an event of its own. It is not closed here, while a request of another client is handled.
  send(id, client);
  count(client);
}

inline bool JobStoreServer::send(Id id, Client& client) const {
  bool open = true;
  while (client.sent < client.output.size()) {
    const auto count = ::send(client.socket.get(), client.output.data() + client.sent,
                              client.output.size() - client.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      open = errno == EAGAIN || errno == EWOULDBLOCK;
      break;
    }
    client.sent += static_cast<std::size_t>(count);
  }
  if (client.sent == client.output.size()) {
    client.output = {};  // frees the memory of a large answer
    client.sent = 0;
  }
  const std::uint32_t wanted = client.output.empty() ? EPOLLIN : EPOLLOUT;
  if (wanted != std::exchange(client.events, wanted)) watch(client.socket.get(), id, wanted, EPOLL_CTL_MOD);
  return open;
}

inline void JobStoreServer::close(Id id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  Client& client = found->second;
  if (client.held) release_held(id, client);
  if (!client.accepted) --num_newcomers_;
  const auto keys = std::move(client.will_keys);
  const auto value = std::move(client.will_value);
  total_bytes_ -= client.counted_bytes;
  clients_.erase(found);
  try {
    for (const auto& key : keys)
      if (find(key) == nullptr) put(key, value);
  } catch (const std::exception&) {  // the store is full: the waiting clients end by their timeout
  }
}

inline void JobStoreServer::hold(Id id, Client& client, Held held) {
  client.held = std::move(held);
  if (settle(id, client)) return;
  count(client);
  if (client.counted_bytes > 0 && total_bytes_ > limits_.total_bytes) {
    client.held.reset();
    throw detail::RefusedRequest{"the store is full"};
  }
  held_until_.emplace(client.held->until, id);
  register_held(id, *client.held);
}

inline bool JobStoreServer::settle(Id id, Client& client) {
  using detail::StoreMessage, detail::StoreStatus;
  Held& held = *client.held;
  while (held.next < held.keys.size() && find(held.keys[held.next]) != nullptr) ++held.next;
  StoreMessage message{StoreStatus::done};
  if (held.next == held.keys.size()) {
    if (held.wants_value) message.text(*find(held.keys.front()));
  } else if (const auto* value = held.unless.empty() ? nullptr : find(held.unless)) {
    message = StoreMessage{StoreStatus::interrupted}.text(*value);
  } else {
    return false;
  }
  client.held.reset();
  reply(id, client, std::move(message));
  return true;
}

inline void JobStoreServer::register_held(Id id, const Held& held) {
  waiting_[held.keys[held.next]].insert(id);
  if (!held.unless.empty()) waiting_[held.unless].insert(id);
}

inline void JobStoreServer::release_held(Id id, Client& client) {
  const auto forget = [&](const std::string& key) {
    const auto found = waiting_.find(key);
    if (found == waiting_.end()) return;
    found->second.erase(id);
    if (found->second.empty()) waiting_.erase(found);
  };
  const Held& held = *client.held;
  held_until_.erase({held.until, id});
  forget(held.keys[held.next]);
  if (!held.unless.empty()) forget(held.unless);
}

inline void JobStoreServer::reply_late(Id id, Client& client) {
  release_held(id, client);
  const Held held = *std::exchange(client.held, std::nullopt);
  detail::StoreMessage message{detail::StoreStatus::late};
  for (std::size_t i = held.next; i < held.keys.size(); ++i)
    if (find(held.keys[i]) == nullptr) message.number(static_cast<std::int64_t>(i));
  reply(id, client, std::move(message));
}

inline void JobStoreServer::key_came(const std::string& key) {
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  const std::vector<Id> ids{found->second.begin(), found->second.end()};
  for (const Id id : ids) {
    Client& client = clients_.at(id);
    release_held(id, client);
    if (settle(id, client)) continue;
    held_until_.emplace(client.held->until, id);
    register_held(id, *client.held);
  }
}

inline void JobStoreServer::put(const std::string& key, std::string value) {
  check_size(key, value);
  const auto found = values_.find(key);
  const std::size_t freed = found == values_.end() ? 0 : key.size() + found->second.size() + kBytesPerKey;
  const std::size_t needed = key.size() + value.size() + kBytesPerKey;
  if (total_bytes_ - freed + needed > limits_.total_bytes) throw detail::RefusedRequest{"the store is full"};
  values_.insert_or_assign(key, std::move(value));
  total_bytes_ = total_bytes_ - freed + needed;
  if (freed == 0) key_came(key);
}

}  // namespace ddpxx
