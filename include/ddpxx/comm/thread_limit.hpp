// ddpxx/comm/thread_limit.hpp — checks that the system allows the threads that a backend needs.
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// Starts `count` threads and ends them. LibTorch's backends start their threads in constructors that end the process
/// without a message if the system refuses the second thread.
/// Errors  `peer` naming the limit.
inline void check_threads(std::size_t count, const std::string& what_for) {
  std::atomic_flag done;
  std::vector<std::jthread> threads;
  const auto end = [&] {
    done.test_and_set();
    done.notify_all();
  };
  try {
    while (threads.size() < count) threads.emplace_back([&done] { done.wait(false); });
  } catch (const std::system_error& error) {
    end();
    throw Error{Errc::peer, "cannot start the " + std::to_string(count) + " threads of " + what_for + ": " +
                                error.code().message() + " (limit: ulimit -u, or pids.max of the control group)"};
  }
  end();
}

}  // namespace ddpxx
