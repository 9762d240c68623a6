// ddpxx/train/known_metrics.hpp — the metrics that a model returns in each step of a training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/train/metric_sums.hpp>

namespace ddpxx {

/// The names of the metrics that the first step has returned. Each later step must return them, since the facts of the
/// step after it hold one sum and one count for each.
class KnownMetrics {
 public:
  /// Errors  `config` where step `step` has returned other names than the first step.
  void expect(const std::vector<std::string>& names, std::int64_t step) const {
    if (first_step_ == 0 || names == names_) return;
    throw Error{Errc::config, "the model returned the metrics " + detail::names_text(names) + " in step " +
                                  std::to_string(step) + ", but " + detail::names_text(names_) + " in step " +
                                  std::to_string(first_step_) +
                                  ": return the same names in the same order in each step"};
  }

  /// Notes the names of the first step, which is `step`; does nothing in later ones.
  ///
  /// Ranks   Collective in the first step.
  /// Errors  `peer` on every rank where the names differ between the ranks.
  void learn(const std::vector<std::string>& names, std::int64_t step, const Group& group) {
    if (first_step_ != 0) return;
    check_same_metrics(names, group);
    names_ = names;
    first_step_ = step;
  }

 private:
  std::vector<std::string> names_;
  std::int64_t first_step_ = 0;  ///< 0 before it is known.
};

}  // namespace ddpxx
