// ddpxx/launch/agent/store_wait.hpp — waits for keys in the agents' store while the agent's poll loop goes on.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ddpxx/comm/job_store_connection.hpp>
#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx::detail {

/// A wait for keys, on a thread and a connection of its own. The destructor ends the wait.
class StoreWait {
 public:
  /// How long the server holds one request for keys that are not set; then the wait asks again.
  static constexpr std::chrono::milliseconds kHold = std::chrono::hours{2'500};

  /// Waits until all `keys` are set or `unless` is set (empty: no such key).
  /// Errors  `peer` if the store is gone or the system gives no thread.
  StoreWait(const JobStoreConnection& connection, std::vector<std::string> keys, std::string unless = {},
            std::chrono::milliseconds hold = kHold)
      : hold_{hold},
        cancel_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)},
        over_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {
    constexpr std::chrono::seconds kConnect{5};  // meanwhile the agent hears no signal
    if (!cancel_ || !over_) throw Error{Errc::peer, "cannot wait for the agents' store (limit: ulimit -n)"};
    auto own = connection.another(JobStoreConnection::Clock::now() + kConnect, cancel_.get());
    try {
      thread_ = std::thread{[this, own = std::move(own), keys = std::move(keys), unless = std::move(unless)]() mutable {
        wait(own, keys, unless);
      }};
    } catch (const std::system_error& cause) {
      throw Error{Errc::peer, "cannot wait for the agents' store: no thread (limit: ulimit -u)"}.with("cause",
                                                                                                      cause.what());
    }
  }
  StoreWait(const StoreWait&) = delete;
  StoreWait& operator=(const StoreWait&) = delete;
  ~StoreWait() {
    signal(cancel_);
    if (thread_.joinable()) thread_.join();
  }

  /// Descriptor that is readable once the wait is over.
  int descriptor() const noexcept { return over_.get(); }
  bool is_over() const {
    pollfd over{over_.get(), POLLIN, 0};
    return ::poll(&over, 1, 0) > 0;
  }
  /// The value of `unless`, if that key has ended the wait. Call it when the wait is over.
  /// Errors  `peer` if the store is gone.
  const std::optional<std::string>& interruption() {
    if (thread_.joinable()) thread_.join();
    if (error_) std::rethrow_exception(error_);
    return result_.interruption;
  }

 private:
  void wait(JobStoreConnection& connection, const std::vector<std::string>& keys, const std::string& unless) {
    try {
      do result_ = connection.wait(keys, unless, JobStoreConnection::Clock::now() + hold_);
      while (!result_.missing.empty());
    } catch (...) {
      error_ = std::current_exception();
    }
    signal(over_);
  }
  static void signal(const Descriptor& descriptor) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(descriptor.get(), &one, sizeof one);
  }

  std::chrono::milliseconds hold_;
  Descriptor cancel_, over_;
  WaitResult result_;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace ddpxx::detail
