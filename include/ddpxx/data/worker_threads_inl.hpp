// ddpxx/data/worker_threads_inl.hpp — definitions of worker_threads.hpp; ddpxx/core/inline.hpp says how they are
// compiled.
#pragma once

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
#include <ddpxx/data/worker_threads.hpp>

namespace ddpxx {

DDPXX_INLINE WorkerThreads::WorkerThreads(std::size_t count) {
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

DDPXX_INLINE WorkerThreads::~WorkerThreads() {
  for (auto& thread : threads_) thread.request_stop();
}

DDPXX_INLINE void WorkerThreads::add(std::function<void()> job) {
  {
    const std::lock_guard lock{mutex_};
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

DDPXX_INLINE void WorkerThreads::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::unique_lock lock{mutex_};
    if (!changed_.wait(lock, stop, [this] { return !jobs_.empty(); })) return;
    const auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
  }
}

}  // namespace ddpxx
