// ddpxx/train/time_plan_inl.hpp — the definitions of time_plan.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

#include <ddpxx/comm/link_time.hpp>
#include <ddpxx/comm/recording.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/train/time_plan.hpp>

namespace ddpxx {

namespace detail {

/// The clocks of a rank and of its link on the planned machine, in seconds.
class PlannedClock {
 public:
  PlannedClock(const PlannedMachine& machine, Recording::Clock::time_point begin)
      : machine_{machine}, recorded_{begin} {}

  /// The rank computes until this time of the recording.
  void compute_until(Recording::Clock::time_point time) {
    const auto seconds = machine_.ranks_per_core * std::chrono::duration<double>{time - recorded_}.count();
    now_ += seconds;
    computed_ += seconds;
    recorded_ = time;
  }
  /// The rank calls a collective; what it did meanwhile in the recording is not a part of the plan.
  void call(const RecordedCall& call) {
    compute_until(call.begin);
    recorded_ = call.end;
    // The cores of all ranks that share one are busy with the bytes of each of them.
    const auto seconds = machine_.ranks_per_core * seconds_of(call, machine_.link);
    if (!machine_.overlaps) now_ += seconds;
    link_is_free_ = machine_.overlaps ? std::max(now_, link_is_free_) + seconds : now_;
    call_ends_.push_back(link_is_free_);
  }
  void wait(const RecordedWait& wait) {
    compute_until(wait.time);
    now_ = std::max(now_, call_ends_[wait.call]);
  }

  double now() const noexcept { return now_; }
  double computed() const noexcept { return computed_; }

 private:
  PlannedMachine machine_;
  Recording::Clock::time_point recorded_;  ///< Until here the recording is replayed.
  double now_ = 0, computed_ = 0, link_is_free_ = 0;
  std::vector<double> call_ends_;
};

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace detail

DDPXX_INLINE StepTime replay(const RecordedSteps& steps, const PlannedMachine& machine) {
  if (steps.ends.size() < 2) throw Error{Errc::config, "replay: no step is recorded: record one or more"};
  const auto& [calls, waits] = *steps.recording;
  detail::PlannedClock clock{machine, calls.empty() ? steps.ends.front() : calls.front().begin};
  std::vector<double> step_seconds, computing_seconds;
  auto call = calls.begin();
  auto wait = waits.begin();
  double begin = 0, computed = 0;
  for (const auto end : steps.ends) {
    while (true) {
      const bool has_call = call != calls.end() && call->begin < end,
                 has_wait = wait != waits.end() && wait->time < end;
      if (!has_call && !has_wait) break;
      const auto index = static_cast<std::size_t>(call - calls.begin());
      if (has_call && (!has_wait || index < wait->started))
        clock.call(*call++);
      else
        clock.wait(*wait++);
    }
    clock.compute_until(end);
    if (end != steps.ends.front()) {
      step_seconds.push_back(clock.now() - begin);
      computing_seconds.push_back(clock.computed() - computed);
    }
    begin = clock.now();
    computed = clock.computed();
  }
  return {detail::median(std::move(step_seconds)), detail::median(std::move(computing_seconds))};
}

}  // namespace ddpxx
