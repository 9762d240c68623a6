// ddpxx/data/worker_threads.hpp — threads that build batches ahead of the consumer.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <latch>
#include <mutex>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>

#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// Threads that start jobs in the order in which they were added. The destructor waits for the jobs that have started
/// and drops the others. A job must not throw.
/// Errors  `config` if the system cannot start so many threads.
class WorkerThreads {
 public:
  explicit WorkerThreads(std::size_t count) {
    if (count == 0) return;
    // A worker that computes in parallel would start a thread pool of its own. The number of threads is set for each
    // worker, but also becomes the default of later threads, so it is restored afterwards.
    const int num_threads = at::get_num_threads();
    std::latch ready{static_cast<std::ptrdiff_t>(count)};
    try {
      while (threads_.size() < count)
        threads_.emplace_back([this, &ready](const std::stop_token& stop) {
          at::get_num_threads();  // applies the default now, which would otherwise overwrite the 1 later
          at::set_num_threads(1);
          ready.count_down();
          run(stop);
        });
    } catch (const std::system_error& error) {
      const auto started = threads_.size();
      threads_.clear();  // waits for the threads, since they use the latch
      at::set_num_threads(num_threads);
      throw Error{Errc::config, "cannot start worker " + std::to_string(started + 1) + " of " + std::to_string(count) +
                                    ": " + error.code().message() + " (limit: ulimit -u); lower num_workers"};
    }
    ready.wait();
    at::set_num_threads(num_threads);
  }
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;
  ~WorkerThreads() {
    for (auto& thread : threads_) thread.request_stop();
  }

  std::size_t size() const noexcept { return threads_.size(); }

  void add(std::function<void()> job) {
    {
      const std::lock_guard lock{mutex_};
      jobs_.push_back(std::move(job));
    }
    changed_.notify_one();
  }

 private:
  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::unique_lock lock{mutex_};
      if (!changed_.wait(lock, stop, [this] { return !jobs_.empty(); })) return;
      const auto job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> jobs_;
  std::vector<std::jthread> threads_;  // last, so that threads are joined before the other members are destroyed
};

}  // namespace ddpxx
