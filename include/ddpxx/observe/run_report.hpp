// ddpxx/observe/run_report.hpp — the observers of one rank: adds the time to each event of a run and calls them.
#pragma once

#include <chrono>
#include <cmath>
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

/// Takes a run's events in their order, adds the time to them, and calls the observers in the order in which they were
/// added. Events before begin() and after end() reach no observer.
class RunReport {
 public:
  explicit RunReport(Log log = Log{0}) : log_{log} {}

  /// Errors  `config` for a null pointer, for an observer that was added before, and between begin() and end().
  void add(std::shared_ptr<Observer> observer) {
    if (!observer) throw Error{Errc::config, "add(observer): the pointer is null"};
    const auto name = observer->name();
    if (has_begun_)
      throw Error{Errc::config,
                  "add(observer): the run has begun, and " + name + " would miss its begin: add it before"};
    for (const auto& each : observers_)
      if (each.observer == observer) throw Error{Errc::config, "add(observer): " + name + " was added before"};
    observers_.push_back({std::move(observer), name});
  }
  bool empty() const noexcept { return observers_.empty(); }

  /// Call before all other events.
  /// Errors  what an observer throws: the run does not begin.
  void begin(const RunBegan& run) {
    began_ = Clock::now();
    ended_ = {.step = run.step, .last_step = run.last_step};
    first_step_ = run.step;
    wants_stop_ = false;
    for (auto& each : observers_) try {
        each.observer->on_begin(run);
      } catch (const std::exception&) {
        throw;
      } catch (...) {
        throw Error{Errc::config, each.name + " failed as the run began, with an exception that is no std::exception"};
      }
    has_begun_ = true;
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
    if (!ended_.best || std::isnan(ended_.best->val_loss) || event.val_loss < ended_.best->val_loss)
      ended_.best = event;
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

  /// Call after all other events; does nothing unless begin() was called.
  void end() {
    if (!has_begun_) return;
    ended_.steps = ended_.step - first_step_;
    ended_.seconds = seconds_since(began_);
    call([&](Observer& observer) { observer.on_end(ended_); });
    for (auto& each : observers_)
      if (const auto failures = std::exchange(each.failures, 0); failures > 1)
        log_.warn(each.name + " failed " + std::to_string(failures) + " times in this run");
    has_begun_ = false;
  }

  /// Whether an observer of this rank has asked to stop since the run began.
  bool wants_stop() const noexcept { return wants_stop_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::shared_ptr<Observer> observer;
    std::string name;
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
    if (!has_begun_) return;
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
      log_.warn(entry.name + " failed: " + why + "; training goes on, and further failures are counted");
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
