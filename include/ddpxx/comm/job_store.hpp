// ddpxx/comm/job_store.hpp — the store of the job with the interface of c10d's stores.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <ddpxx/comm/job_store_connection.hpp>
#include <ddpxx/comm/job_store_server.hpp>
#include <ddpxx/comm/time_limit.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// A c10d::Store over one connection to a `JobStoreServer`. Threads may share a store, which makes one call at a time;
/// `clone()` makes a store with a connection of its own. Each request ends within the store's timeout, or within that
/// of a wait, or 2 s later if the server does not answer.
/// Errors  c10::DistStoreError for keys that are not set in time, c10::DistNetworkError if the store is gone.
class JobStore final : public c10d::Store {
 public:
  /// Takes over the connection. If the server runs in this process, `server` keeps it alive as long as this store and
  /// its clones.
  JobStore(JobStoreConnection connection, std::chrono::milliseconds timeout,
           std::shared_ptr<JobStoreServer> server = {})
      : Store{timeout}, server_{std::move(server)}, connection_{std::move(connection)} {}

  c10::intrusive_ptr<Store> clone() override {
    return ask([&](auto& connection, auto until) -> c10::intrusive_ptr<Store> {
      return c10::make_intrusive<JobStore>(connection.another(until), timeout_, server_);
    });
  }

  using Store::compareSet;
  using Store::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    ask([&](auto& connection, auto until) { connection.set(key, text_of(value), until); });
  }
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override {
    return ask([&](auto& connection, auto until) {
      return bytes_of_value(connection.compare_set(key, text_of(expected), text_of(desired), until));
    });
  }
  std::vector<std::uint8_t> get(const std::string& key) override {
    return ask([&](auto& connection, auto until) {
      const auto value = connection.get(key, until);
      if (!value) throw late({key}, timeout_);
      return bytes_of_value(*value);
    });
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    return ask([&](auto& connection, auto until) { return connection.add(key, value, until); });
  }
  bool deleteKey(const std::string& key) override {
    return ask([&](auto& connection, auto until) { return connection.remove(key, until); });
  }
  bool check(const std::vector<std::string>& keys) override {
    return ask([&](auto& connection, auto until) { return connection.check(keys, until); });
  }
  std::int64_t getNumKeys() override {
    return ask([](auto& connection, auto until) { return connection.count_keys(until); });
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    ask(
        [&](auto& connection, auto until) {
          const auto result = connection.wait(keys, "", until);
          if (result.missing.empty()) return;
          std::vector<std::string> missing;
          for (const auto index : result.missing) missing.push_back(keys.at(index));
          throw late(missing, timeout);
        },
        timeout);
  }

  bool hasExtendedApi() const override { return true; }
  void append(const std::string& key, const std::vector<std::uint8_t>& value) override {
    ask([&](auto& connection, auto until) { connection.append(key, text_of(value), until); });
  }
  /// Waits for the keys first, as c10d's own stores do.
  std::vector<std::vector<std::uint8_t>> multiGet(const std::vector<std::string>& keys) override {
    wait(keys);
    return ask([&](auto& connection, auto until) {
      std::vector<std::vector<std::uint8_t>> values;
      for (const auto& value : connection.multi_get(keys, until)) values.push_back(bytes_of_value(value));
      return values;
    });
  }
  void multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<std::uint8_t>>& values) override {
    std::vector<std::string> texts;
    for (const auto& value : values) texts.push_back(text_of(value));
    ask([&](auto& connection, auto until) { connection.multi_set(keys, texts, until); });
  }

 private:
  using Time = JobStoreConnection::Time;

  static std::string text_of(const std::vector<std::uint8_t>& value) { return {value.begin(), value.end()}; }
  static std::vector<std::uint8_t> bytes_of_value(const std::string& value) { return {value.begin(), value.end()}; }
  static c10::DistStoreError late(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
    return {{__func__, __FILE__, __LINE__},
            "the key " + keys.front() + (keys.size() > 1 ? " and others" : "") + " did not come within " +
                std::to_string(timeout.count()) + " ms"};
  }

  template <class Request>
  std::invoke_result_t<Request, JobStoreConnection&, Time> ask(Request&& request) {
    return ask(std::forward<Request>(request), timeout_);
  }
  template <class Request>
  std::invoke_result_t<Request, JobStoreConnection&, Time> ask(Request&& request, std::chrono::milliseconds timeout) {
    const std::lock_guard lock{mutex_};
    try {
      return request(connection_, JobStoreConnection::Clock::now() + detail::limit_of_store(timeout));
    } catch (const Error& error) {
      throw c10::DistNetworkError{{__func__, __FILE__, __LINE__}, error.what()};
    }
  }

  std::shared_ptr<JobStoreServer> server_;
  std::mutex mutex_;
  JobStoreConnection connection_;
};

}  // namespace ddpxx
