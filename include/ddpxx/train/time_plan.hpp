// ddpxx/train/time_plan.hpp — how long a step takes on many ranks, known before the ranks are there.
#pragma once

#include <memory>
#include <vector>

#include <ddpxx/comm/link_config.hpp>
#include <ddpxx/comm/recording.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

/// The ranks and links of the run that is asked about.
struct PlannedMachine {
  LinkConfig link = {};
  /// Number of ranks that share one core, by which the time of their computation is multiplied.
  double ranks_per_core = 1.0;
  /// Whether collectives run beside the computation. They do not where the core that computes also moves their bytes.
  bool overlaps = true;
};

/// Medians over the steps of a plan, in seconds.
struct StepTime {
  double step = 0.0;
  double computing = 0.0;  ///< Median time in which the rank computes.
};

/// Steps that one rank has done in a recording group: what it called, and when. record_steps() makes them.
struct RecordedSteps {
  std::shared_ptr<const Recording> recording;
  /// When the first of the steps began, and when each of them ended. What came before is in the recording as well.
  std::vector<Recording::Clock::time_point> ends;
};

/// Replays recorded steps, with the time of their collectives on another machine. The rank computes as long as it did;
/// a collective begins when the rank calls it and the one before has ended, and the rank waits where it waited.
///
/// What the plan does not know: ranks that are slower than this one, and links that ranks share.
/// Errors  `config` where no step is recorded.
DDPXX_INLINE StepTime replay(const RecordedSteps& steps, const PlannedMachine& machine);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/time_plan_inl.hpp>
#endif
