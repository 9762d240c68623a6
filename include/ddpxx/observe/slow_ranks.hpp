// ddpxx/observe/slow_ranks.hpp — names the ranks that the others wait for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/observer.hpp>
#include <ddpxx/observe/rank_time.hpp>

namespace ddpxx {

/// Warns of a rank that needs more than `factor` times the median rank's own time, as means over `window` steps, in two
/// windows one after the other. It is named again only after a window in which it was not slow.
class SlowRanks : public Observer {
 public:
  explicit SlowRanks(double factor, std::int64_t window = 50, Log log = Log{0});

  DDPXX_INLINE std::string name() const override;

  DDPXX_INLINE void on_begin(const RunBegan& run) override;
  DDPXX_INLINE Verdict on_step(const StepDone& event) override;

 private:
  /// Compares the ranks at the end of a window.
  void compare();
  std::string text(std::size_t rank, double median) const;

  double factor_;
  std::int64_t window_;
  Log log_;
  std::vector<std::string> hosts_;
  std::vector<RankTime> sums_;              ///< Over the steps of the present window.
  std::int64_t steps_ = 0;                  ///< In the present window.
  std::vector<std::int64_t> slow_windows_;  ///< The last windows in a row in which each rank was slow.
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/observe/slow_ranks_inl.hpp>
#endif
