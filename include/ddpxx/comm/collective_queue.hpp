// ddpxx/comm/collective_queue.hpp — the started collectives of a group that shares memory, and who carries them out.
#pragma once

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <signal.h>
#include <stdexcept>
#include <sys/types.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ddpxx/comm/shared_collectives.hpp>
#include <ddpxx/comm/shared_segment.hpp>
#include <ddpxx/comm/time_limit.hpp>

namespace ddpxx::detail {

/// Carries out collectives one after the other, in the order in which they were started. The thread that waits for one
/// does the work itself, which is fastest. If no thread waits for a while, a helper thread continues: ranks may wait
/// for their collectives in different orders, over several groups, and a rank may compute for long before it waits.
class CollectiveQueue {
 public:
  using Clock = std::chrono::steady_clock;
  using Body = std::function<void(SharedCollectives&)>;

  /// A started collective. The thread that carries it out has its body; the other fields are guarded by the queue's
  /// mutex.
  struct Task {
    Body body;
    bool has_ended = false;
    std::exception_ptr failure;
  };

  /// A queue that only the process which has made it destroys. A child that it has forked shares the memory of the
  /// ranks, but has no helper thread, and the end of its copy must not look like the end of its parent.
  template <class... Arguments>
  static std::shared_ptr<CollectiveQueue> make(Arguments&&... arguments) {
    return {new CollectiveQueue{std::forward<Arguments>(arguments)...}, [](CollectiveQueue* queue) {
              if (queue->process_ == ::getpid()) delete queue;
            }};
  }

  /// `spin` is how long a thread that waits looks for the other ranks before it sleeps; `names` are those of
  /// SharedRounds.
  CollectiveQueue(SharedSegment segment, int rank, int size, PeerProcesses processes, std::chrono::nanoseconds spin,
                  std::vector<int> names = {})
      : segment_{std::move(segment)},
        collectives_{segment_.data(), rank, size, std::move(processes), std::move(names)},
        spin_{spin} {
    // The signals of the process are for the program's own threads. Those that an instruction of the helper causes, as
    // reading a file that has become shorter, are not.
    ::sigset_t all, former;
    ::sigfillset(&all);
    for (const int number : {SIGBUS, SIGFPE, SIGILL, SIGSEGV}) ::sigdelset(&all, number);
    ::pthread_sigmask(SIG_SETMASK, &all, &former);
    try {
      helper_ = std::thread{[this] { help(); }};
    } catch (...) {
      ::pthread_sigmask(SIG_SETMASK, &former, nullptr);
      throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &former, nullptr);
  }
  CollectiveQueue(const CollectiveQueue&) = delete;
  CollectiveQueue& operator=(const CollectiveQueue&) = delete;
  ~CollectiveQueue() {
    end("this rank has abandoned the group");
    helper_.join();
  }

  /// The limit of each collective, from the time at which this rank begins to carry it out.
  void set_timeout(std::chrono::milliseconds timeout) {
    const std::lock_guard lock{mutex_};
    timeout_ = at_most_months(timeout);
  }

  /// Starts a collective.
  std::shared_ptr<Task> start(Body body) {
    auto task = std::make_shared<Task>(Task{std::move(body), false, {}});
    const std::lock_guard lock{mutex_};
    if (failure_) {
      fail(*task);
      return task;
    }
    queue_.push_back(task);
    if (helper_sleeps_) helper_needed_.notify_one();
    return task;
  }

  bool has_ended(const Task& task) const {
    const std::lock_guard lock{mutex_};
    return task.has_ended;
  }
  std::exception_ptr failure(const Task& task) const {
    const std::lock_guard lock{mutex_};
    return task.failure;
  }

  /// Returns when `task` and all that were started before it have ended.
  /// Errors  the failure of the task; std::runtime_error if it has not ended at `deadline`. This rank then gives up.
  void wait(const Task& task, std::optional<Clock::time_point> deadline) {
    std::unique_lock lock{mutex_};
    ++waiters_;
    while (!task.has_ended) {
      if (!carrying_out_) {
        carry_out_next(lock, spin_, deadline);
      } else if (!deadline) {
        changed_.wait(lock);
      } else if (changed_.wait_until(lock, *deadline) == std::cv_status::timeout && !task.has_ended) {
        give_up(std::make_exception_ptr(std::runtime_error{"a collective has not ended in time"}));
        break;
      }
    }
    --waiters_;
    if (const auto failure = task.has_ended ? task.failure : failure_) std::rethrow_exception(failure);
  }

  /// Ends all collectives with an error that says `why`, on this rank and on those that wait for it.
  void end(const char* why) noexcept {
    if (process_ != ::getpid()) return;  // see `make`
    const std::lock_guard lock{mutex_};
    ending_ = true;
    helper_needed_.notify_one();
    give_up(std::make_exception_ptr(std::runtime_error{why}));
  }

 private:
  /// The helper looks this often whether the first collective has waited since it last looked. It does not need to be
  /// woken for each collective, which would cost more than a small one takes.
  static constexpr std::chrono::milliseconds kLook{2};
  /// The helper sleeps until it is woken when it has found nothing so often.
  static constexpr int kMaxIdleLooks = 50;

  /// Carries out the first collective of the queue. `lock` is released meanwhile.
  void carry_out_next(std::unique_lock<std::mutex>& lock, std::chrono::nanoseconds spin,
                      std::optional<Clock::time_point> deadline) {
    carrying_out_ = true;
    const auto task = queue_.front();
    collectives_.rounds().set_patience({spin, timeout_, deadline.value_or(Clock::time_point::max())});
    lock.unlock();
    std::exception_ptr failure;
    try {
      task->body(collectives_);
    } catch (...) {
      failure = std::current_exception();
    }
    task->body = {};  // drops the tensors
    lock.lock();
    carrying_out_ = false;
    ++num_ended_;
    task->has_ended = true;
    task->failure = failure;
    if (!queue_.empty()) queue_.pop_front();
    if (failure) give_up(failure);
    changed_.notify_all();
  }

  /// Lets this and all later collectives fail. The other ranks notice it.
  void give_up(const std::exception_ptr& failure) noexcept {
    if (!failure_) failure_ = failure;
    collectives_.rounds().give_up();
    // The first one may be under way; then the thread that carries it out gets an error and ends it.
    std::deque<std::shared_ptr<Task>> kept;
    for (auto& task : queue_)
      if (carrying_out_ && kept.empty())
        kept.push_back(std::move(task));
      else
        fail(*task);
    queue_ = std::move(kept);
    changed_.notify_all();
  }
  void fail(Task& task) const noexcept {
    task.body = {};  // drops the tensors
    task.has_ended = true;
    task.failure = failure_;
  }

  void help() {
    std::unique_lock lock{mutex_};
    int idle_looks = 0;
    while (!ending_) {
      if (queue_.empty() && idle_looks >= kMaxIdleLooks) {
        helper_sleeps_ = true;
        helper_needed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
        helper_sleeps_ = false;
        idle_looks = 0;
      }
      const auto ended_before = num_ended_;
      const bool was_waiting = !queue_.empty();
      helper_needed_.wait_for(lock, kLook, [&] { return ending_; });
      if (ending_) break;
      idle_looks = queue_.empty() && num_ended_ == ended_before ? idle_looks + 1 : 0;
      if (!was_waiting || num_ended_ != ended_before) continue;
      while (!ending_ && !queue_.empty() && !carrying_out_ && waiters_ == 0)
        carry_out_next(lock, std::chrono::nanoseconds{0}, std::nullopt);
    }
  }

  const pid_t process_ = ::getpid();
  SharedSegment segment_;
  SharedCollectives collectives_;
  const std::chrono::nanoseconds spin_;
  std::chrono::milliseconds timeout_ = std::chrono::minutes{10};

  mutable std::mutex mutex_;
  std::condition_variable changed_;  ///< A collective has ended.
  std::condition_variable helper_needed_;
  std::deque<std::shared_ptr<Task>> queue_;
  bool carrying_out_ = false;  ///< A thread carries out the first collective of the queue.
  int waiters_ = 0;
  std::uint64_t num_ended_ = 0;
  bool helper_sleeps_ = false;
  bool ending_ = false;
  std::exception_ptr failure_;
  std::thread helper_;
};

}  // namespace ddpxx::detail
