// ddpxx/optim/in_parts.hpp — one optimizer for each segment, so that a segment can be stepped once its gradients are
// there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/optim/parameter_group.hpp>

namespace ddpxx {

/// One `Optimizer` for each segment of an arena. After each of them has made its step, values and state equal those of
/// one optimizer over all slices, bit for bit, provided that a step treats each element alone. A segment whose
/// parameters have no elements has an optimizer without slices and without state.
template <SliceOptimizer Optimizer>
class OptimizerInParts {
 public:
  /// `groups` are for an optimizer that takes parameter groups.
  OptimizerInParts(const typename Optimizer::Config& config, const Arena& arena,
                   [[maybe_unused]] std::span<const ParameterGroup> groups = kDecayGroups) {
    auto rest = std::span<const Slice>{arena.slices()};
    for (const auto& segment : arena.segments()) {
      std::size_t count = 0;
      for (std::int64_t size = 0; size < segment.master.numel(); ++count) size += rest[count].end - rest[count].begin;
      slices_.push_back(rest.first(count));
      if constexpr (TakesParameterGroups<Optimizer>)
        parts_.emplace_back(config, rest.first(count), groups);
      else
        parts_.emplace_back(config, rest.first(count));
      rest = rest.subspan(count);
    }
    for (const auto& part : parts_)
      for (std::size_t i = 0; const auto& moment : part.moments()) {
        if (moments_.size() <= i) moments_.push_back({moment.name, {}});
        auto& all = moments_[i++].slices;
        all.insert(all.end(), moment.slices.begin(), moment.slices.end());
      }
  }

  /// The slices of a segment.
  std::span<const Slice> slices(std::size_t segment) const { return slices_[segment]; }
  /// Steps the slices of a segment. Call it once in each step for each segment.
  void step(std::size_t segment, double learning_rate) { parts_[segment].step(learning_rate); }

  /// The moments of all segments, in the layout of one optimizer over all slices.
  std::span<const Moment> moments() const noexcept { return moments_; }
  /// Sets the number of steps of each optimizer, after a snapshot has been read into moments() and step_count().
  void resume_at([[maybe_unused]] std::int64_t step) {
    for (auto& part : parts_) {
      if constexpr (CountsOptimizerSteps<Optimizer>) part.resume_at(step);
      if constexpr (KeepsStepCount<Optimizer>)
        if (part.step_count().defined()) {
          const c10::NoGradGuard no_grad;
          at::Tensor{part.step_count()}.copy_(step_count());
        }
    }
  }
  /// The number of steps, which is equal in all segments since none of them skips a step.
  at::Tensor step_count() const
    requires KeepsStepCount<Optimizer>
  {
    for (const auto& part : parts_)
      if (part.step_count().defined()) return part.step_count();
    return {};
  }

 private:
  std::deque<Optimizer> parts_;
  std::vector<std::span<const Slice>> slices_;
  std::vector<Moment> moments_;
};

}  // namespace ddpxx
