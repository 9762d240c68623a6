// ddpxx/comm/job_store_connection.hpp — one client's connection to the store of its job.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <ddpxx/comm/job_store_protocol.hpp>
#include <ddpxx/comm/keep_alive.hpp>
#include <ddpxx/comm/resolve.hpp>
#include <ddpxx/comm/socket_address.hpp>
#include <ddpxx/comm/store_hello.hpp>
#include <ddpxx/comm/timed_socket.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>

namespace ddpxx {

/// How a wait for keys has ended.
struct WaitResult {
  std::vector<std::size_t> missing = {};         ///< Indices of the keys that were not set in time.
  std::optional<std::string> interruption = {};  ///< The value of the key that ended the wait early.
};

/// A connection to a `JobStoreServer`, for one thread at a time. No call waits longer than `kAnswerTime` beyond its
/// deadline.
/// Errors  `peer` from every call: the store is gone, it did not answer by the deadline, or it refused the request.
///         After the first two the connection is closed, and every later call fails.
class JobStoreConnection {
 public:
  using Clock = TimedSocket::Clock;
  using Time = TimedSocket::Time;

  /// How much later than the end of a wait the server's answer may come.
  static constexpr std::chrono::milliseconds kAnswerTime{2'000};

  struct Options {
    StoreCredentials credentials = {};
    /// A descriptor that ends every wait when it becomes readable, with an error `stopped`; -1 for none.
    int interrupt = -1;
    /// Called from time to time while no server listens, with the reason.
    std::function<void(const std::string& reason)> still_trying = {};
    /// When a silent server is lost; none: never.
    std::optional<KeepAlive> keep_alive = {};
  };

  /// Connects to the first of `addresses` that answers. Tries again until `deadline`, because the server may start
  /// later. `where` names the store in errors.
  /// Errors  also `peer` at once for a wrong token or another run's store.
  static JobStoreConnection open(std::span<const SocketAddress> addresses, const std::string& where, Options options,
                                 Time deadline);

  /// Connects to a host by its name.
  static JobStoreConnection open(const std::string& host, std::uint16_t port, Options options, Time deadline);

  /// Another connection to the same server.
  JobStoreConnection another(Time deadline) const { return another(deadline, options_.interrupt); }
  /// Another connection to the same server, whose waits end when `interrupt` becomes readable (-1: never).
  JobStoreConnection another(Time deadline, int interrupt) const {
    if (!socket_.is_open()) throw loss();
    auto options = options_;
    options.interrupt = interrupt;
    return open(std::array{SocketAddress::of_peer(socket_.get())}, where_, std::move(options), deadline);
  }

  /// Whether the server has closed the connection.
  bool lost() const noexcept { return lost_; }
  /// The address of this host on the connection to the server.
  SocketAddress local_address() const { return SocketAddress::of_socket(socket_.get()); }

  void set(std::string_view key, std::string_view value, Time until) {
    request(message(Operation::set).text(key).text(value), until);
  }
  /// Returns the value of `key` as soon as it is set; none if it is not set by `hold_until`.
  std::optional<std::string> get(std::string_view key, Time hold_until) {
    return request(message(Operation::get).number(from_now(hold_until)).text(key), hold_until + kAnswerTime,
                   [](Status status, Reader& reader) {
                     return status == Status::late ? std::nullopt : std::optional{std::string{reader.text()}};
                   });
  }
  std::int64_t add(std::string_view key, std::int64_t amount, Time until) {
    return request(message(Operation::add).text(key).number(amount), until, number_in);
  }
  void append(std::string_view key, std::string_view value, Time until) {
    request(message(Operation::append).text(key).text(value), until);
  }
  /// Sets `key` to `desired` if its value is `expected`, or if it is missing and `expected` is empty. Returns the new
  /// value of the key, or `expected` if the key is still missing.
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired, Time until) {
    return request(message(Operation::compare_set).text(key).text(expected).text(desired), until,
                   [](Status, Reader& reader) { return std::string{reader.text()}; });
  }
  /// Whether all keys are set.
  bool check(std::span<const std::string> keys, Time until) {
    return request(with_keys(message(Operation::check), keys), until, number_in) != 0;
  }
  /// Waits until all keys are set, or until `hold_until`. The wait ends early when the key `unless` is set (empty: no
  /// such key).
  WaitResult wait(std::span<const std::string> keys, std::string_view unless, Time hold_until) {
    return wait(keys, unless, hold_until, hold_until + kAnswerTime);
  }
  /// Waits as the function above does, but lets the server be silent until `give_up`.
  WaitResult wait(std::span<const std::string> keys, std::string_view unless, Time hold_until, Time give_up) {
    WaitResult result;
    std::size_t first = 0;
    do {
      const auto part = keys_from(keys, first);
      // Once keys are missing, the rest is only asked about.
      const auto hold = result.missing.empty() ? hold_until : Clock::now();
      const auto wanted = with_keys(message(Operation::wait).number(from_now(hold)).text(unless), part);
      request(wanted, give_up, [&](Status status, Reader& reader) {
        if (status == Status::interrupted) result.interruption = std::string{reader.text()};
        while (status == Status::late && !reader.at_end()) {
          const auto index = static_cast<std::size_t>(reader.number());
          if (index >= part.size()) throw detail::MalformedMessage{};
          result.missing.push_back(first + index);
        }
      });
      first += part.size();
    } while (first < keys.size() && !result.interruption);
    return result;
  }
  /// The values of keys that are all set.
  std::vector<std::string> multi_get(std::span<const std::string> keys, Time until) {
    std::vector<std::string> values;
    while (values.size() < keys.size()) {
      const auto part = keys_from(keys, values.size());
      request(with_keys(message(Operation::multi_get), part), until, [&](Status, Reader& reader) {
        for (std::size_t i = 0; i < part.size(); ++i) values.emplace_back(reader.text());
      });
    }
    return values;
  }
  void multi_set(std::span<const std::string> keys, std::span<const std::string> values, Time until) {
    auto all = message(Operation::multi_set);
    for (std::size_t i = 0; i < keys.size(); ++i) all.text(keys[i]).text(values[i]);
    request(std::move(all), until);
  }
  /// Removes a key; returns false if it was not set.
  bool remove(std::string_view key, Time until) {
    return request(message(Operation::remove).text(key), until, number_in) != 0;
  }
  std::int64_t count_keys(Time until) { return request(message(Operation::count_keys), until, number_in); }
  /// Sets `key` to `value` if it is missing, and asks the server in the same request to set those of `will` that are
  /// missing when this connection ends to `will_value`. Returns the value that `key` has then: if it is another one,
  /// nothing has changed. A connection has the will of its last claim.
  std::string claim(std::string_view key, std::string_view value, std::span<const std::string> will,
                    std::string_view will_value, Time until) {
    return request(with_keys(message(Operation::claim).text(key).text(value).text(will_value), will), until,
                   [](Status, Reader& reader) { return std::string{reader.text()}; });
  }

 private:
  using Operation = detail::StoreOperation;
  using Status = detail::StoreStatus;
  using Reader = detail::StoreMessageReader;

  JobStoreConnection(TimedSocket socket, std::string where, Options options)
      : socket_{std::move(socket)}, where_{std::move(where)}, options_{std::move(options)} {}

  static detail::StoreMessage message(Operation operation) { return detail::StoreMessage{operation}; }
  static detail::StoreMessage with_keys(detail::StoreMessage message, std::span<const std::string> keys) {
    for (const auto& key : keys) message.text(key);
    return message;
  }
  static std::int64_t number_in(Status, Reader& reader) { return reader.number(); }
  /// The keys from number `first` on that one request asks for. All N processes of a job may wait for N keys at the
  /// same time, and the store keeps the keys of each request.
  static std::span<const std::string> keys_from(std::span<const std::string> keys, std::size_t first) {
    constexpr std::size_t kKeysOfAllRequests = 2U << 20U, kLeast = 64;
    const auto count = std::max(kKeysOfAllRequests / std::max<std::size_t>(keys.size(), 1), kLeast);
    return keys.subspan(first, std::min(count, keys.size() - first));
  }
  static std::int64_t from_now(Time time) {
    return std::max<std::int64_t>(std::chrono::ceil<std::chrono::milliseconds>(time - Clock::now()).count(), 0);
  }

  /// Sends the hello; returns the reason if there was no answer.
  std::optional<std::string> introduce(Time until);

  /// Sends a request and returns what `read` makes of the status and the fields of the answer.
  template <class Read>
  std::invoke_result_t<Read, Status, Reader&> request(detail::StoreMessage message, Time until, Read read);
  void request(detail::StoreMessage message, Time until) {
    request(std::move(message), until, [](Status, Reader&) {});
  }
  /// Sends a message; returns the code and the fields of the answer.
  std::string exchange(detail::StoreMessage message, Time until);
  void send(std::string_view bytes, Time until) { expect_done(socket_.send(bytes, until)); }
  void receive(std::span<char> bytes, Time until) { expect_done(socket_.receive(bytes, until)); }
  /// Closes the connection, and throws, unless a call has ended as wanted.
  void expect_done(TimedSocket::End end);
  Error silence() const {
    return Error{Errc::peer, "the store at " + where_ +
                                 " accepts the connection but does not answer: its process "
                                 "hangs or is stopped, or another program listens there"};
  }
  Error loss() const { return Error{Errc::peer, "the store at " + where_ + " has closed the connection"}; }

  TimedSocket socket_;
  bool lost_ = false;
  std::string where_;
  Options options_;
};

namespace detail {

inline Error nobody_listens(const std::string& where, const std::string& reason) {
  return Error{Errc::peer, "no answer at " + where +
                               ": rank 0 never came there, or the address is wrong or not reachable from this host"}
      .with("cause", reason);
}

}  // namespace detail

inline JobStoreConnection JobStoreConnection::open(std::span<const SocketAddress> addresses, const std::string& where,
                                                   Options options, Time deadline) {
  ddpxx::check(options.credentials);
  // An address whose packets get lost must not use up the time for the next one.
  constexpr std::chrono::seconds kOneAddress{5};
  constexpr std::chrono::seconds kOneHello{10};  // limits the time between two calls of `still_trying`
  const auto still_trying = std::exchange(options.still_trying, {});
  std::chrono::milliseconds pause{20};
  std::string reason = "the time is over";
  do {
    for (const auto& address : addresses) {
      auto socket = TimedSocket::connect(address, options.interrupt, std::min(deadline, Clock::now() + kOneAddress));
      if (!socket.is_open()) {
        reason = std::strerror(errno);
        continue;
      }
      if (options.keep_alive) set_keep_alive(socket.get(), *options.keep_alive);
      JobStoreConnection connection{std::move(socket), where, options};
      const auto failure = connection.introduce(std::min(deadline, Clock::now() + kOneHello));
      if (!failure) return connection;
      reason = *failure;
    }
    if (still_trying) still_trying(reason);
    TimedSocket::pause(options.interrupt, std::min(deadline, Clock::now() + pause));
    pause = std::min<std::chrono::milliseconds>(pause * 2, std::chrono::milliseconds{500});
  } while (Clock::now() < deadline);
  throw detail::nobody_listens(where, reason);
}

inline JobStoreConnection JobStoreConnection::open(const std::string& host, std::uint16_t port, Options options,
                                                   Time deadline) {
  return open(resolve(host, port, deadline), store_url(host, port), std::move(options), deadline);
}

inline std::optional<std::string> JobStoreConnection::introduce(Time until) {
  std::array<char, 1> answer{};
  try {
    send(detail::hello_message(options_.credentials), until);
    receive(answer, until);
  } catch (const Error& error) {
    if (error.code() == Errc::stopped) throw;
    if (lost_) return "the connection was closed without an answer";
    return "the connection is accepted but not answered: the process there hangs or is stopped, or is another program";
  }
  switch (static_cast<detail::HelloAnswer>(answer[0])) {
    case detail::HelloAnswer::accepted:
      return std::nullopt;
    case detail::HelloAnswer::wrong_token:
      throw Error{Errc::peer, "the store at " + where_ +
                                  " refuses this process: its DDPXX_TOKEN differs from the store's. Give all processes "
                                  "of a run the same token, and another run another port"};
    case detail::HelloAnswer::other_run:
      throw Error{Errc::peer, "the store at " + where_ + " belongs to another run: this one's id is \"" +
                                  harmless(options_.credentials.run_id) +
                                  "\" (TORCHELASTIC_RUN_ID, --rdzv-id). Give all processes of a run the same id, and "
                                  "another run another port"};
    case detail::HelloAnswer::full:
      throw Error{Errc::peer,
                  "the store at " + where_ + " serves as many connections as it can (limit there: ulimit -n)"};
    case detail::HelloAnswer::other_version:
      throw Error{Errc::peer, "the store at " + where_ +
                                  " is served by another version of ddpxx: all processes of a run need one version"};
  }
  throw Error{Errc::peer, "another program listens at " + where_ + ": choose another port"};
}

template <class Read>
std::invoke_result_t<Read, JobStoreConnection::Status, JobStoreConnection::Reader&> JobStoreConnection::request(
    detail::StoreMessage message, Time until, Read read) {
  try {
    const auto answer = exchange(std::move(message), until);
    Reader reader{answer};
    const auto status = static_cast<Status>(reader.code());
    if (status == Status::refused)
      throw Error{Errc::peer, "the store at " + where_ + " refuses a request: " + harmless(reader.text())};
    return read(status, reader);
  } catch (const detail::MalformedMessage&) {
    socket_.close();
    throw Error{Errc::peer, "the store at " + where_ + " gives an answer that this version does not understand"};
  }
}

inline std::string JobStoreConnection::exchange(detail::StoreMessage message, Time until) {
  constexpr std::size_t kLength = detail::StoreMessage::kLengthBytes;
  constexpr std::size_t kMaxAnswer = std::size_t{256} << 20U;  // larger than the limit of any server
  send(std::move(message).finish(), until);
  std::array<char, kLength> length{};
  receive(length, until);
  const std::size_t size = detail::read_number<std::uint32_t>({length.data(), kLength});
  if (size > kMaxAnswer) throw detail::MalformedMessage{};
  std::string answer(size, '\0');
  receive(answer, until);
  return answer;
}

inline void JobStoreConnection::expect_done(TimedSocket::End end) {
  if (end == TimedSocket::End::done) return;
  socket_.close();
  if (end == TimedSocket::End::late) throw silence();
  lost_ = true;
  throw loss();
}

}  // namespace ddpxx
