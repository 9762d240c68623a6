// ddpxx/observe/run_report.hpp — the observers of one rank: adds the time to each event of a run and calls them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/observer.hpp>

namespace ddpxx {

/// Takes a run's events in their order, adds the time to them, and calls the observers in the order in which they were
/// added. Events before begin() and after end() reach no observer.
class RunReport {
 public:
  explicit RunReport(Log log = Log{0}) : log_{log} {}

  /// Adds an observer.
  /// Errors  `config` for a null pointer, for an observer that was added before, and between begin() and end().
  void add(std::shared_ptr<Observer> observer);
  bool empty() const noexcept { return observers_.empty(); }

  /// Call before all other events.
  /// Errors  what an observer throws; the run must not begin then. The observers that were told of the begin are told
  ///         of the end.
  void begin(const RunBegan& run);

  /// Hands the event to all observers.
  void show(StepDone event);
  void show(const Evaluating& event);
  void show(Evaluated event);
  void show(SnapshotSaved event);
  /// Errors  those of the observers: a rank whose gradients an observer has left half changed must not step.
  void before_optimizer_step(const std::span<const Slice>& slices);

  /// Call after all other events; does nothing unless begin() was called.
  void end();

  /// Whether an observer of this rank has asked to stop since the run began.
  bool wants_stop() const noexcept { return wants_stop_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::shared_ptr<Observer> observer;
    std::string name;
    std::int64_t failures = 0;
    bool has_begun = false;  ///< Its on_begin was called and did not throw.
  };

  EventTime now() const;
  /// Calls each observer. The first exception of an observer is logged and later ones are counted, but none ends the
  /// run: if this rank stopped, the other ranks would wait for it.
  template <class Call>
  void call(Call&& call_one);
  /// Calls each observer; wants_stop() is true if one of them asks to stop.
  template <class Ask>
  void ask(Ask&& ask_one);
  void count_failure(Entry& entry, const std::string& why);

  Log log_;
  std::vector<Entry> observers_;
  Clock::time_point began_ = Clock::now();
  std::int64_t first_step_ = 0;
  bool has_begun_ = false;
  bool wants_stop_ = false;
  RunEnded ended_;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/observe/run_report_inl.hpp>
#endif
