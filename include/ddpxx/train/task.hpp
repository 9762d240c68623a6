// ddpxx/train/task.hpp — work that a thread does while training goes on, or that is done when its result is asked for.
#pragma once

#include <chrono>
#include <future>
#include <system_error>
#include <type_traits>

namespace ddpxx {

/// When a task is done: at once in a thread of its own, or in the thread that calls `get()`.
enum class TaskRuns { in_background, when_asked };

/// Starts a task. If the system has no thread left, the task runs when its result is asked for: an exception here would
/// leave other ranks waiting. The future's destructor waits for the thread.
template <class Operation>
std::future<std::invoke_result_t<Operation>> start_task(TaskRuns runs, const Operation& operation) {
  if (runs == TaskRuns::in_background) try {
      return std::async(std::launch::async, operation);
    } catch (const std::system_error&) {
      // Deferred below.
    }
  return std::async(std::launch::deferred, operation);
}

/// True if `get()` does not wait for a thread: the thread is done, there is none, or there is no task.
template <class Result>
bool is_done(const std::future<Result>& task) {
  return !task.valid() || task.wait_for(std::chrono::seconds{0}) != std::future_status::timeout;
}

}  // namespace ddpxx
