// ddpxx/train/record_steps.hpp — does the steps of one rank of a run with any number of ranks, for a plan of their
// time.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <ddpxx/comm/recording.hpp>
#include <ddpxx/train/time_plan.hpp>
#include <ddpxx/train/train_step.hpp>

namespace ddpxx {

/// Does 5 to 50 steps, for about two seconds, as rank 0 of a group of `world_size` ranks in which no other process
/// takes part (see recording_group()), and records them. `batches` are the micro-batches of each step. The model is on
/// a CPU: operations of a GPU are still running when the host goes on, so their time could not be measured.
///
/// Errors  `config` for a model on another device; those of `TrainStep`.
template <class Model, class Optimizer, class Precision, class Strategy, class Batch>
RecordedSteps record_steps(int world_size, std::shared_ptr<Model> model,
                           const typename TrainStep<Model, Optimizer, Precision, Strategy>::Config& config,
                           std::span<const Batch> batches) {
  using Clock = Recording::Clock;
  // The order of layers and the sizes of buffers are settled after two steps, and numbers are read two steps later.
  constexpr int kWarmUp = 4, kMinSteps = 5, kMaxSteps = 50;
  constexpr std::chrono::seconds kEnough{2};
  const auto recording = std::make_shared<Recording>();
  auto group = recording_group(0, world_size, recording);
  std::vector<Clock::time_point> ends;
  {
    TrainStep<Model, Optimizer, Precision, Strategy> step{group, std::move(model), config};
    step.model().train();
    for (int i = 0; i < kWarmUp; ++i) step.step(batches);
    ends.push_back(Clock::now());
    while (ends.size() <= kMinSteps || (ends.size() <= kMaxSteps && ends.back() - ends.front() < kEnough)) {
      step.step(batches);
      ends.push_back(Clock::now());
    }
  }
  group.leave();
  return {recording, std::move(ends)};
}

}  // namespace ddpxx
