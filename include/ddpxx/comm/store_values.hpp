// ddpxx/comm/store_values.hpp — the keys and values of a job's store, and the memory that the store may take.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <ddpxx/comm/store_limits.hpp>

namespace ddpxx::detail {

/// Thrown if a request exceeds a limit of the store; the reason is sent to the client.
struct RefusedRequest : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Keys and values within limits. The limit of the whole store includes the data that is kept for clients.
class StoreValues {
 public:
  explicit StoreValues(const StoreLimits& limits) : limits_{limits} {}

  std::size_t size() const noexcept { return values_.size(); }
  /// The value of `key`; null if there is none.
  const std::string* find(const std::string& key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }

  /// Sets `key`; true if the key is new.
  /// Errors  `RefusedRequest` beyond a limit; the value is then as it was.
  bool put(const std::string& key, std::string value) {
    check_size(key, value);
    const auto found = values_.find(key);
    const bool is_new = found == values_.end();
    const std::size_t freed = is_new ? 0 : bytes_of(key, found->second), needed = bytes_of(key, value);
    if (total_bytes_ - freed + needed > limits_.total_bytes) throw RefusedRequest{"the store is full"};
    values_.insert_or_assign(key, std::move(value));
    total_bytes_ = total_bytes_ - freed + needed;
    return is_new;
  }
  /// Removes `key`; false if there is none.
  bool remove(const std::string& key) {
    const auto found = values_.find(key);
    if (found == values_.end()) return false;
    total_bytes_ -= bytes_of(found->first, found->second);
    values_.erase(found);
    return true;
  }
  /// Errors  `RefusedRequest` for a key or a value that is too long.
  void check_size(std::string_view key, std::string_view value) const {
    if (key.empty() || key.size() > limits_.key_bytes) throw RefusedRequest{"the key is empty or too long"};
    if (value.size() > limits_.value_bytes) throw RefusedRequest{"the value is too large"};
  }

  /// Replaces the size of the data that is kept for a client.
  void count_client(std::size_t before, std::size_t after) noexcept { total_bytes_ = total_bytes_ - before + after; }
  /// Whether `bytes` more fit into the limit of the whole store.
  bool has_room_for(std::size_t bytes) const noexcept { return total_bytes_ + bytes <= limits_.total_bytes; }

 private:
  static std::size_t bytes_of(std::string_view key, std::string_view value) {
    return key.size() + value.size() + kBytesPerKey;
  }

  StoreLimits limits_;
  std::unordered_map<std::string, std::string> values_;
  std::size_t total_bytes_ = 0;
};

}  // namespace ddpxx::detail
