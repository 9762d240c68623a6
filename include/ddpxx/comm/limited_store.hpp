// ddpxx/comm/limited_store.hpp — adds a time limit to stores whose operations have none.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <ddpxx/comm/job_store_connection.hpp>
#include <ddpxx/comm/time_limit.hpp>
#include <ddpxx/comm/within.hpp>

namespace ddpxx {

/// Wraps another store so that each operation ends within the timeout. It is for c10d::TCPStore, whose client waits
/// without a limit for a silent server. The thread of an operation that has exceeded the timeout is left running, since
/// the process ends soon.
/// Errors  c10::DistNetworkError if the store is silent, and from then on at once; the errors of the other store.
class LimitedStore final : public c10d::Store {
  using Bytes = std::vector<std::uint8_t>;

 public:
  LimitedStore(c10::intrusive_ptr<c10d::Store> store, std::chrono::milliseconds timeout)
      : Store{timeout}, store_{std::move(store)} {
    store_->setTimeout(timeout);
  }

  c10::intrusive_ptr<Store> clone() override {
    auto copy = ask([](Store& store) { return Answer{.store = store.clone()}; }).store;
    return c10::make_intrusive<LimitedStore>(std::move(copy), timeout_);
  }
  void setTimeout(const std::chrono::milliseconds& timeout) override {
    timeout_ = timeout;
    store_->setTimeout(timeout);
  }

  using Store::compareSet;
  using Store::set;
  void set(const std::string& key, const Bytes& value) override {
    ask([=](Store& store) {
      store.set(key, value);
      return Answer{};
    });
  }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    return ask([=](Store& store) { return Answer{.value = store.compareSet(key, expected, desired)}; }).value;
  }
  Bytes get(const std::string& key) override {
    return ask([=](Store& store) { return Answer{.value = store.get(key)}; }).value;
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    return ask([=](Store& store) { return Answer{.number = store.add(key, value)}; }).number;
  }
  bool deleteKey(const std::string& key) override {
    return ask([=](Store& store) { return Answer{.yes = store.deleteKey(key)}; }).yes;
  }
  bool check(const std::vector<std::string>& keys) override {
    return ask([=](Store& store) { return Answer{.yes = store.check(keys)}; }).yes;
  }
  std::int64_t getNumKeys() override {
    return ask([](Store& store) { return Answer{.number = store.getNumKeys()}; }).number;
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    ask(
        [=](Store& store) {
          store.wait(keys, timeout);
          return Answer{};
        },
        timeout);
  }

  bool hasExtendedApi() const override { return store_->hasExtendedApi(); }
  void append(const std::string& key, const Bytes& value) override {
    ask([=](Store& store) {
      store.append(key, value);
      return Answer{};
    });
  }
  std::vector<Bytes> multiGet(const std::vector<std::string>& keys) override {
    return ask([=](Store& store) { return Answer{.values = store.multiGet(keys)}; }).values;
  }
  void multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) override {
    ask([=](Store& store) {
      store.multiSet(keys, values);
      return Answer{};
    });
  }

 private:
  /// The result of an operation of the other store. All operations share this type, so that `within` is instantiated
  /// once.
  struct Answer {
    c10::intrusive_ptr<Store> store = {};
    std::int64_t number = 0;
    bool yes = false;
    Bytes value = {};
    std::vector<Bytes> values = {};
  };

  /// Calls `work` with the other store on a new thread, which owns everything that `work` uses.
  Answer ask(std::function<Answer(Store&)> work) { return ask(std::move(work), timeout_); }
  Answer ask(std::function<Answer(Store&)> work, std::chrono::milliseconds timeout) {
    using Clock = std::chrono::steady_clock;
    if (!silent_) {
      // Allow more time than the timeout, because the other store's own error, which says more, may come slightly
      // later.
      auto result = within(Clock::now() + detail::limit_of_store(timeout) + JobStoreConnection::kAnswerTime,
                           [store = store_, work = std::move(work)] { return work(*store); });
      if (result) return std::move(*result);
      silent_ = true;
    }
    throw c10::DistNetworkError{{__func__, __FILE__, __LINE__},
                                "the store does not answer: its process hangs or is stopped, or another program "
                                "listens at its port"};
  }

  c10::intrusive_ptr<c10d::Store> store_;
  std::atomic<bool> silent_ = false;
};

}  // namespace ddpxx
