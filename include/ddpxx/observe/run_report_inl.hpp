// ddpxx/observe/run_report_inl.hpp — definitions of run_report.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <chrono>
#include <cmath>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <ddpxx/core/error.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/observer.hpp>
#include <ddpxx/observe/run_report.hpp>

namespace ddpxx {

namespace detail {

inline double seconds_since(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - time).count();
}

}  // namespace detail

template <class Call>
void RunReport::call(Call&& call_one) {
  if (!has_begun_) return;
  for (auto& each : observers_) {
    if (!each.has_begun) continue;
    try {
      call_one(*each.observer);
    } catch (const std::exception& error) {
      count_failure(each, error.what());
    } catch (...) {
      count_failure(each, "an exception that is not a std::exception");
    }
  }
}

template <class Ask>
void RunReport::ask(Ask&& ask_one) {
  call([&](Observer& observer) {
    if (ask_one(observer) == Verdict::stop) wants_stop_ = true;
  });
}

DDPXX_INLINE void RunReport::add(std::shared_ptr<Observer> observer) {
  if (!observer) throw Error{Errc::config, "add(observer): the pointer is null"};
  const auto name = observer->name();
  if (has_begun_)
    throw Error{Errc::config, "add(observer): the run has begun, and " + name + " would miss its begin: add it before"};
  for (const auto& each : observers_)
    if (each.observer == observer) throw Error{Errc::config, "add(observer): " + name + " was added before"};
  observers_.push_back({std::move(observer), name});
}

DDPXX_INLINE void RunReport::begin(const RunBegan& run) {
  began_ = Clock::now();
  ended_ = {.step = run.step, .last_step = run.last_step};
  first_step_ = run.step;
  wants_stop_ = false;
  has_begun_ = true;
  for (auto& each : observers_) try {
      each.has_begun = false;
      each.observer->on_begin(run);
      each.has_begun = true;
    } catch (const std::exception&) {
      end();
      throw;
    } catch (...) {
      end();
      throw Error{Errc::config, each.name + " failed as the run began, with an exception that is not a std::exception"};
    }
}

DDPXX_INLINE void RunReport::show(StepDone event) {
  ended_.step = event.step;
  event.at = now();
  ask([&](Observer& observer) { return observer.on_step(event); });
}

DDPXX_INLINE void RunReport::show(const Evaluating& event) {
  call([&](Observer& observer) { observer.on_evaluating(event); });
}

DDPXX_INLINE void RunReport::show(Evaluated event) {
  event.at = now();
  if (!ended_.best || std::isnan(ended_.best->val_loss) || event.val_loss < ended_.best->val_loss) ended_.best = event;
  ask([&](Observer& observer) { return observer.on_evaluated(event); });
}

DDPXX_INLINE void RunReport::show(SnapshotSaved event) {
  event.at = now();
  ended_.saved = event.path;
  call([&](Observer& observer) { observer.on_snapshot(event); });
}

DDPXX_INLINE void RunReport::before_optimizer_step(const std::span<const Slice>& slices) {
  if (!has_begun_) return;
  for (const auto& each : observers_) each.observer->before_optimizer_step(slices);
}

DDPXX_INLINE void RunReport::end() {
  if (!has_begun_) return;
  ended_.steps = ended_.step - first_step_;
  ended_.seconds = detail::seconds_since(began_);
  call([&](Observer& observer) { observer.on_end(ended_); });
  for (auto& each : observers_) {
    each.has_begun = false;
    if (const auto failures = std::exchange(each.failures, 0); failures > 1)
      log_.warn(each.name + " failed " + std::to_string(failures) + " times in this run");
  }
  has_begun_ = false;
}

DDPXX_INLINE EventTime RunReport::now() const {
  return {std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(),
          detail::seconds_since(began_)};
}

DDPXX_INLINE void RunReport::count_failure(Entry& entry, const std::string& why) {
  if (++entry.failures == 1)
    log_.warn(entry.name + " failed: " + why + "; training goes on, and further failures are counted");
}

}  // namespace ddpxx
