// ddpxx/comm/store_requests.hpp — answers the requests to a job's store.
#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ddpxx/comm/held_requests.hpp>
#include <ddpxx/comm/job_store_protocol.hpp>
#include <ddpxx/comm/store_client.hpp>
#include <ddpxx/comm/store_limits.hpp>
#include <ddpxx/comm/store_values.hpp>
#include <ddpxx/core/descriptor.hpp>

namespace ddpxx::detail {

/// Reads requests from the input of clients and sends the answers: at once, or when the keys of a request that waits
/// for keys are set.
class StoreRequests {
 public:
  using Clock = std::chrono::steady_clock;

  /// `clients` are all connections, which `epoll` watches; both must outlive this object.
  StoreRequests(const StoreLimits& limits, StoreClients& clients, const Descriptor& epoll)
      : limits_{limits}, clients_{clients}, epoll_{epoll}, values_{limits} {}

  /// Answers the request received from `client` if it is complete.
  /// Errors  `MalformedMessage` if it is malformed, or if the last request has not been answered yet.
  void take(StoreClient& client);

  /// Updates the size of the data that is kept for `client`; returns false if it exceeds the memory of the store.
  bool count_memory(StoreClient& client);

  /// Closes a connection that has been removed from the clients, and sets the keys of its will.
  void end(StoreClient client);

  /// When the time of a held request is over next; none if no request is held.
  std::optional<Clock::time_point> next_deadline() const { return held_.next_deadline(); }
  /// Answers the requests whose time is over at `now`.
  void keep_deadlines(Clock::time_point now);

 private:
  void answer(StoreClient& client, std::string_view request);
  void reply(StoreClient& client, StoreMessage message);
  void hold(StoreClient& client, HeldRequest held);
  /// Answers a held request if that is possible now; returns false if it must wait longer.
  bool settle(StoreClient& client);
  void reply_late(StoreClient& client);
  void put(const std::string& key, std::string value);
  void key_came(const std::string& key);

  StoreLimits limits_;
  StoreClients& clients_;
  const Descriptor& epoll_;
  StoreValues values_;
  HeldRequests held_;
};

inline void StoreRequests::take(StoreClient& client) {
  constexpr std::size_t kLength = StoreMessage::kLengthBytes;
  if (client.input.empty()) return;
  // Clients must wait for each answer. A client that does not could occupy this thread and make answers pile up.
  if (client.held || !client.output.empty()) throw MalformedMessage{};
  if (client.input.size() < kLength) return;
  const std::size_t size = read_number<std::uint32_t>(std::string_view{client.input}.substr(0, kLength));
  if (size > limits_.message_bytes || client.input.size() > kLength + size) throw MalformedMessage{};
  if (client.input.size() < kLength + size) return;
  const auto request = std::exchange(client.input, {});
  count_memory(client);
  try {
    answer(client, std::string_view{request}.substr(kLength));
  } catch (const RefusedRequest& refused) {
    reply(client, StoreMessage{StoreStatus::refused}.text(refused.what()));
  }
}

inline bool StoreRequests::count_memory(StoreClient& client) {
  const auto before = std::exchange(client.counted_bytes, client.bytes());
  values_.count_client(before, client.counted_bytes);
  return client.counted_bytes == 0 || values_.has_room_for(0);
}

inline void StoreRequests::end(StoreClient client) {
  client.socket.close();
  if (client.held) held_.remove(client.id, *client.held);
  values_.count_client(client.counted_bytes, 0);
  try {
    for (const auto& key : client.will_keys)
      if (values_.find(key) == nullptr) put(key, client.will_value);
  } catch (const std::exception&) {  // the store is full: the waiting clients end by their timeout
  }
}

inline void StoreRequests::keep_deadlines(Clock::time_point now) {
  while (const auto id = held_.late_at(now)) reply_late(clients_.at(*id));
}

inline void StoreRequests::answer(StoreClient& client, std::string_view request) {
  StoreMessageReader reader{request};
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
      HeldRequest held{.until = until(), .wants_value = true};
      held.add(key());
      return hold(client, std::move(held));
    }
    case StoreOperation::add: {
      const auto name = key();
      const auto amount = reader.number();
      std::int64_t value = 0;
      if (const auto* old = values_.find(name)) {
        const auto [end, status] = std::from_chars(old->data(), old->data() + old->size(), value);
        if (status != std::errc{} || end != old->data() + old->size())
          throw RefusedRequest{"the value to add to is not a number"};
      }
      if (__builtin_add_overflow(value, amount, &value)) throw RefusedRequest{"the sum is too large"};
      put(name, std::to_string(value));
      done.number(value);
      break;
    }
    case StoreOperation::append: {
      const auto name = key();
      const auto* old = values_.find(name);
      auto value = old ? *old : std::string{};
      put(name, value.append(reader.text()));
      break;
    }
    case StoreOperation::compare_set: {
      const auto name = key();
      const auto expected = reader.text(), desired = reader.text();
      const auto* old = values_.find(name);
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
      while (!reader.at_end()) all = values_.find(key()) != nullptr && all;
      done.number(all ? 1 : 0);
      break;
    }
    case StoreOperation::wait: {
      HeldRequest held{.until = until()};
      held.unless = key();
      while (!reader.at_end()) {
        held.add(reader.text());
        if (held.keys.size() > limits_.wait_keys) throw RefusedRequest{"too many keys to wait for"};
      }
      return hold(client, std::move(held));
    }
    case StoreOperation::multi_get: {
      while (!reader.at_end()) {
        const auto* value = values_.find(key());
        if (value == nullptr) throw RefusedRequest{"a key is missing"};
        if (done.size() + value->size() > limits_.message_bytes)
          throw RefusedRequest{"the values are too large for one answer"};
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
      done.number(values_.remove(key()) ? 1 : 0);
      break;
    }
    case StoreOperation::count_keys:
      done.number(static_cast<std::int64_t>(values_.size()));
      break;
    case StoreOperation::claim: {
      const auto name = key();
      std::string value{reader.text()}, will_value{reader.text()};
      std::vector<std::string> will_keys;
      while (!reader.at_end()) {
        values_.check_size(will_keys.emplace_back(key()), will_value);
        if (will_keys.size() > limits_.will_keys) throw RefusedRequest{"too many keys to set at the end"};
      }
      if (!values_.has_room_for(will_value.size())) throw RefusedRequest{"the store is full"};
      if (const auto* old = values_.find(name)) {
        done.text(*old);
        break;
      }
      done.text(value);
      put(name, std::move(value));
      client.will_keys = std::move(will_keys);
      client.will_value = std::move(will_value);
      break;  // reply() updates the count
    }
    default:
      throw MalformedMessage{};
  }
  reply(client, std::move(done));
}

inline void StoreRequests::reply(StoreClient& client, StoreMessage message) {
  if (message.size() > StoreClient::kFreeBytes && !values_.has_room_for(message.size()))
    message = StoreMessage{StoreStatus::refused}.text("the store is full");
  client.output += std::move(message).finish();
  // A lost connection causes an event of its own. It is not closed here, while a request of another client is handled.
  client.send(epoll_);
  count_memory(client);
}

inline void StoreRequests::hold(StoreClient& client, HeldRequest held) {
  client.held = std::move(held);
  if (settle(client)) return;
  if (!count_memory(client)) {
    client.held.reset();
    throw RefusedRequest{"the store is full"};
  }
  held_.add(client.id, *client.held);
}

inline bool StoreRequests::settle(StoreClient& client) {
  HeldRequest& held = *client.held;
  while (held.next < held.keys.size() && values_.find(held.keys[held.next]) != nullptr) ++held.next;
  StoreMessage message{StoreStatus::done};
  if (held.next == held.keys.size()) {
    if (held.wants_value) message.text(*values_.find(held.keys.front()));
  } else if (const auto* value = held.unless.empty() ? nullptr : values_.find(held.unless)) {
    message = StoreMessage{StoreStatus::interrupted}.text(*value);
  } else {
    return false;
  }
  client.held.reset();
  reply(client, std::move(message));
  return true;
}

inline void StoreRequests::reply_late(StoreClient& client) {
  held_.remove(client.id, *client.held);
  const HeldRequest held = *std::exchange(client.held, std::nullopt);
  StoreMessage message{StoreStatus::late};
  for (std::size_t i = held.next; i < held.keys.size(); ++i)
    if (values_.find(held.keys[i]) == nullptr) message.number(static_cast<std::int64_t>(i));
  reply(client, std::move(message));
}

inline void StoreRequests::put(const std::string& key, std::string value) {
  if (values_.put(key, std::move(value))) key_came(key);
}

inline void StoreRequests::key_came(const std::string& key) {
  for (const auto id : held_.waiting_for(key)) {
    StoreClient& client = clients_.at(id);
    held_.remove(id, *client.held);
    if (!settle(client)) held_.add(id, *client.held);
  }
}

}  // namespace ddpxx::detail
