// ddpxx/observe/run_report.hpp — the observers of one rank: dates a run's events and calls each observer.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/observer.hpp>

namespace ddpxx {

/// Takes a run's events in their order, dates them, and calls the observers in the order in which they were added.
class RunReport {
 public:
  explicit RunReport(Log log = Log{0}) : log_{log} {}

  /// Errors  `config` for a null pointer.
  void add(std::shared_ptr<Observer> observer) {
    if (!observer) throw Error{Errc::config, "add(observer): the pointer is null"};
    observers_.push_back({std::move(observer)});
  }
  bool empty() const noexcept { return observers_.empty(); }

  /// Comes first.
  /// Errors  what an observer throws: the run does not begin.
  void begin(const RunBegan& run) {
    began_ = Clock::now();
    ended_ = {.step = run.step, .last_step = run.last_step};
    first_step_ = run.step;
    has_begun_ = true;
    wants_stop_ = false;
    for (auto& each : observers_) each.observer->on_begin(run);
  }

  void show(StepDone event) {
    ended_.step = event.step;
    event.at = now();
    ask([&](Observer& observer) { return observer.on_step(event); });
  }
  void show(const Evaluating& event) {
    call([&](Observer& observer) { observer.on_evaluating(event); });
  }
  void show(Evaluated event) {
    event.at = now();
    if (!ended_.best || event.val_loss < ended_.best->val_loss) ended_.best = event;
    ask([&](Observer& observer) { return observer.on_evaluated(event); });
  }
  void show(SnapshotSaved event) {
    event.at = now();
    ended_.saved = event.path;
    call([&](Observer& observer) { observer.on_snapshot(event); });
  }
  void before_optimizer_step(const std::span<const Slice>& slices) {
    call([&](Observer& observer) { observer.before_optimizer_step(slices); });
  }

  /// Comes last; does nothing without a begin.
  void end() {
    if (!std::exchange(has_begun_, false)) return;
    ended_.steps = ended_.step - first_step_;
    ended_.seconds = seconds_since(began_);
    call([&](Observer& observer) { observer.on_end(ended_); });
    for (auto& each : observers_)
      if (const auto failures = std::exchange(each.failures, 0); failures > 1)
        log_.warn(each.observer->name() + " failed " + std::to_string(failures) + " times in this run");
  }

  /// Whether an observer of this rank has asked to stop since the run began.
  bool wants_stop() const noexcept { return wants_stop_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::shared_ptr<Observer> observer;
    std::int64_t failures = 0;
  };

  static double seconds_since(Clock::time_point time) {
    return std::chrono::duration<double>(Clock::now() - time).count();
  }
  EventTime now() const {
    return {std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(),
            seconds_since(began_)};
  }

  /// Calls each observer. A rank whose observer fails must not leave the others alone: it warns and goes on.
  template <class Call>
  void call(Call&& call_one) {
    for (auto& each : observers_) {
      try {
        call_one(*each.observer);
      } catch (const std::exception& error) {
        count_failure(each, error.what());
      } catch (...) {
        count_failure(each, "an exception that is no std::exception");
      }
    }
  }
  template <class Ask>
  void ask(Ask&& ask_one) {
    call([&](Observer& observer) {
      if (ask_one(observer) == Verdict::stop) wants_stop_ = true;
    });
  }
  void count_failure(Entry& entry, const std::string& why) {
    if (++entry.failures == 1)
      log_.warn(entry.observer->name() + " failed: " + why + "; training goes on, and further failures are counted");
  }

  Log log_;
  std::vector<Entry> observers_;
  Clock::time_point began_ = Clock::now();
  std::int64_t first_step_ = 0;
  bool has_begun_ = false;
  bool wants_stop_ = false;
  RunEnded ended_;
};

}  // namespace ddpxx
