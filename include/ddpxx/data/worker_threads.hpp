// ddpxx/data/worker_threads.hpp — threads that build batches ahead of the consumer.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include <ddpxx/core/inline.hpp>

namespace ddpxx {

/// Threads that start jobs in the order in which they were added. The destructor waits for the jobs that have started
/// and drops the others. A job must not throw.
/// Errors  `config` if the system cannot start so many threads.
class WorkerThreads {
 public:
  explicit WorkerThreads(std::size_t count);
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;
  ~WorkerThreads();

  std::size_t size() const noexcept { return threads_.size(); }

  void add(std::function<void()> job);

 private:
  void run(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> jobs_;
  std::vector<std::jthread> threads_;  // last, so that threads are joined before the other members are destroyed
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/data/worker_threads_inl.hpp>
#endif
