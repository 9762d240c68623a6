// ddpxx/comm/limited_store.hpp — a time limit for stores whose operations have none.
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
#include <ddpxx/comm/within.hpp>

namespace ddpxx {

/// Another store, every operation of which ends within the time-out. For c10d::TCPStore, whose client waits without a
/// limit for a server that is silent. An operation that is given up keeps a thread; the process is about to end then.
/// Errors  c10::DistNetworkError when the store is silent, from then on at once; what the other store throws.
class LimitedStore final : public c10d::Store {
  using Bytes = std::vector<std::uint8_t>;

 public:
  LimitedStore(c10::intrusive_ptr<c10d::Store> store, std::chrono::milliseconds timeout)
      : Store{timeout}, store_{std::move(store)} {
    store_->setTimeout(timeout);
  }

  c10::intrusive_ptr<Store> clone() override {
    auto copy = ask([](Store& store) { return Answer{.store = store.clone()}; }, timeout_).store;
    return c10::make_intrusive<LimitedStore>(std::move(copy), timeout_);
  }
  void setTimeout(const std::chrono::milliseconds& timeout) override {
    timeout_ = timeout;
    store_->setTimeout(timeout);
  }

  using Store::compareSet;
  using Store::set;
  void set(const std::string& key, const Bytes& value) override {
    ask(
        [=](Store& store) {
          store.set(key, value);
          return Answer{};
        },
        timeout_);
  }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    return ask([=](Store& store) { return Answer{.value = store.compareSet(key, expected, desired)}; }, timeout_).value;
  }
  Bytes get(const std::string& key) override {
    return ask([=](Store& store) { return Answer{.value = store.get(key)}; }, timeout_).value;
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    return ask([=](Store& store) { return Answer{.number = store.add(key, value)}; }, timeout_).number;
  }
  bool deleteKey(const std::string& key) override {
    return ask([=](Store& store) { return Answer{.yes = store.deleteKey(key)}; }, timeout_).yes;
  }
  bool check(const std::vector<std::string>& keys) override {
    return ask([=](Store& store) { return Answer{.yes = store.check(keys)}; }, timeout_).yes;
  }
  std::int64_t getNumKeys() override {
    return ask([](Store& store) { return Answer{.number = store.getNumKeys()}; }, timeout_).number;
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
    ask(
        [=](Store& store) {
          store.append(key, value);
          return Answer{};
        },
        timeout_);
  }
  std::vector<Bytes> multiGet(const std::vector<std::string>& keys) override {
    return ask([=](Store& store) { return Answer{.values = store.multiGet(keys)}; }, timeout_).values;
  }
  void multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) override {
    ask(
        [=](Store& store) {
          store.multiSet(keys, values);
          return Answer{};
        },
        timeout_);
  }

 private:
  /// What an operation of the other store has returned. One type for all operations: `within` is instantiated once.
  struct Answer {
    c10::intrusive_ptr<Store> store = {};
    std::int64_t number = 0;
    bool yes = false;
    Bytes value = {};
    std::vector<Bytes> values = {};
  };

  /// Calls `work` with the other store on a thread of its own, which owns everything that `work` uses.
  Answer ask(std::function<Answer(Store&)> work, std::chrono::milliseconds timeout) {
    using Clock = std::chrono::steady_clock;
    // Zero is c10d's word for no time-out; a wait of months is near enough, and adds to the clock without overflow.
    constexpr std::chrono::hours kMaxTimeout{2'500};
    if (timeout <= kNoTimeout || timeout > kMaxTimeout) timeout = kMaxTimeout;
    if (!silent_) {
      // The other store's own error, which knows more, may come a little later than the time-out.
      auto result = within(Clock::now() + timeout + JobStoreConnection::kAnswerTime,
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
