// ddpxx/comm/within.hpp — a time limit for calls that have none of their own.
#pragma once

#include <chrono>
#include <concepts>
#include <future>
#include <optional>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// Runs `work()` on a new thread and waits for its result until `deadline`; returns none if it has not ended by then.
/// The thread then continues alone, so `work` must own everything that it uses. An exception of `work` is thrown here.
/// Errors  `peer` if the system refuses the thread.
template <std::invocable Work>
std::optional<std::invoke_result_t<Work>> within(std::chrono::steady_clock::time_point deadline, Work work) {
  std::packaged_task<std::invoke_result_t<Work>()> task{std::move(work)};
  auto result = task.get_future();
  try {
    std::thread{std::move(task)}.detach();
  } catch (const std::system_error& error) {
    throw Error{Errc::peer, "cannot start a thread to wait for the store: " + error.code().message() +
                                " (limit: ulimit -u, or pids.max of the control group)"};
  }
  if (result.wait_until(deadline) == std::future_status::timeout) return std::nullopt;
  return result.get();
}

}  // namespace ddpxx
