// ddpxx/comm/limited_store.hpp — a time limit for stores whose operations have none.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <type_traits>
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
 public:
  LimitedStore(c10::intrusive_ptr<c10d::Store> store, std::chrono::milliseconds timeout)
      : Store{timeout}, store_{std::move(store)} {
    store_->setTimeout(timeout);
  }

  c10::intrusive_ptr<Store> clone() override {
    return c10::make_intrusive<LimitedStore>(ask([](Store& store) { return store.clone(); }, timeout_), timeout_);
  }
  void setTimeout(const std::chrono::milliseconds& timeout) override {
    timeout_ = timeout;
    store_->setTimeout(timeout);
  }

  using Store::compareSet;
  using Store::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    ask_without_answer([=](Store& store) { store.set(key, value); }, timeout_);
  }
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override {
    return ask([=](Store& store) { return store.compareSet(key, expected, desired); }, timeout_);
  }
  std::vector<std::uint8_t> get(const std::string& key) override {
    return ask([=](Store& store) { return store.get(key); }, timeout_);
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    return ask([=](Store& store) { return store.add(key, value); }, timeout_);
  }
  bool deleteKey(const std::string& key) override {
    return ask([=](Store& store) { return store.deleteKey(key); }, timeout_);
  }
  bool check(const std::vector<std::string>& keys) override {
    return ask([=](Store& store) { return store.check(keys); }, timeout_);
  }
  std::int64_t getNumKeys() override {
    return ask([](Store& store) { return store.getNumKeys(); }, timeout_);
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    ask_without_answer([=](Store& store) { store.wait(keys, timeout); }, timeout);
  }

  bool hasExtendedApi() const override { return store_->hasExtendedApi(); }
  void append(const std::string& key, const std::vector<std::uint8_t>& value) override {
    ask_without_answer([=](Store& store) { store.append(key, value); }, timeout_);
  }
  std::vector<std::vector<std::uint8_t>> multiGet(const std::vector<std::string>& keys) override {
    return ask([=](Store& store) { return store.multiGet(keys); }, timeout_);
  }
  void multiSet(const std::vector<std::string>& keys, const std::vector<std::vector<std::uint8_t>>& values) override {
    ask_without_answer([=](Store& store) { store.multiSet(keys, values); }, timeout_);
  }

 private:
  template <class Work>
  std::invoke_result_t<Work, Store&> ask(Work work, std::chrono::milliseconds timeout) {
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
  template <class Work>
  void ask_without_answer(Work work, std::chrono::milliseconds timeout) {
    ask(
        [work = std::move(work)](Store& store) {
          work(store);
          return true;
        },
        timeout);
  }

  c10::intrusive_ptr<c10d::Store> store_;
  std::atomic<bool> silent_ = false;
};

}  // namespace ddpxx
