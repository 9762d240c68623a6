// ddpxx/optim/in_parts.hpp — an optimizer a segment, so that each can be stepped as soon as its gradients are there.
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

namespace ddpxx {

/// The segments of an arena, each with an `Optimizer` of its own. Once each part has been stepped, values and state are
/// those of one optimizer over all slices, bit for bit: nothing in a step joins elements. A segment without elements,
/// of parameters that have none, is a part without slices and without state.
template <SliceOptimizer Optimizer>
class OptimizerInParts {
 public:
  OptimizerInParts(const typename Optimizer::Config& config, const Arena& arena) {
    auto rest = std::span<const Slice>{arena.slices()};
    for (const auto& segment : arena.segments()) {
      std::size_t count = 0;
      for (std::int64_t size = 0; size < segment.master.numel(); ++count) size += rest[count].end - rest[count].begin;
      slices_.push_back(rest.first(count));
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
  /// Once a step for each segment.
  void step(std::size_t segment, double learning_rate) { parts_[segment].step(learning_rate); }

  /// Laid out as those of one optimizer over all slices.
  std::span<const Moment> moments() const noexcept { return moments_; }
  /// Says that moments() and step_count() now hold the state after `step` steps.
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
  /// No part leaves a step out, so that all that count have the same.
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
