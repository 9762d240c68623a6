// ddpxx/train/check_step.hpp — refuses settings that a step cannot follow with its optimizer and its strategy.
#pragma once

#include <string>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/type_name.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/precision/concept.hpp>
#include <ddpxx/train/parameter_groups.hpp>
#include <ddpxx/train/train_step_config.hpp>

namespace ddpxx::detail {

/// Refuses to leave out steps where that is not possible.
template <class Optimizer, class Strategy>
void check_spikes(bool captures) {
  const std::string setting = "training.spike_factor: ";
  if (steps_in_backward<Strategy>)
    throw Error{Errc::config, setting +
                                  "StepInBackward has stepped the first parameters before it knows the norm of all "
                                  "gradients: set spike_factor=0, or choose the strategy alone"};
  if (!SkipsSteps<Optimizer>)
    throw Error{Errc::config, setting + type_name<Optimizer>() +
                                  " cannot leave out a step: set spike_factor=0, or choose AdamW, Adam, SGD or Lion"};
  if (LetsRanksDrift<Strategy>)
    throw Error{Errc::config, setting + "under " + type_name<Strategy>() +
                                  " each rank has gradients of its own, and would leave out steps alone: set "
                                  "spike_factor=0"};
  if (captures)
    throw Error{Errc::config,
                setting + "a captured step cannot be left out: set spike_factor=0, or training.cuda_graph=false"};
}

/// Refuses to capture steps where that is not possible.
template <class Optimizer, class Strategy>
void check_capture(const typename Strategy::Config& strategy) {
  bool can_be_captured = false;
  if constexpr (CanBeCaptured<Strategy> && !steps_in_backward<Strategy>)
    can_be_captured = Strategy::can_be_captured(strategy);
  if (!can_be_captured)
    throw Error{Errc::config, "training.cuda_graph: a step under " + type_name<Strategy>() +
                                  " cannot be captured, because it communicates, steps in backward, or computes "
                                  "layers again: choose SingleDevice alone, or set cuda_graph=false"};
  if constexpr (!StepsWithLoadedRate<Optimizer>)
    throw Error{Errc::config, "training.cuda_graph: a step of " + type_name<Optimizer>() +
                                  " cannot be captured, because it reads the learning rate on the host: choose AdamW "
                                  "or Adam, or set cuda_graph=false"};
}

/// Throws what TrainStep refuses of its settings before it sends anything.
template <class Optimizer, class Precision, class Strategy>
void check_step(const TrainStepConfig<Optimizer, Precision, Strategy>& config) {
  if (steps_in_backward<Strategy> && config.grad_norm_clip > 0)
    throw Error{Errc::config,
                "training.grad_norm_clip: the norm is known when all gradients are there, and StepInBackward has "
                "stepped the first of them by then: set grad_norm_clip=0 (grad_value_clip works), or choose the "
                "strategy alone"};
  if (config.spike_factor > 0) check_spikes<Optimizer, Strategy>(static_cast<bool>(config.capture));
  if constexpr (ChecksSkippedSteps<Optimizer>)
    if (config.spike_factor > 0 || scales_loss<Precision>) Optimizer::check_can_skip_steps(config.optimizer);
  check_parameter_groups<Optimizer>(config.parameter_groups);
  if (config.capture && config.detect_anomaly)
    throw Error{Errc::config,
                "training.detect_anomaly: a step that is replayed as a CUDA graph does not show its operations: set "
                "training.cuda_graph=false"};
  if (config.capture) check_capture<Optimizer, Strategy>(config.strategy);
  if constexpr (ChecksConfig<Strategy>) Strategy::check(config.strategy);
}

}  // namespace ddpxx::detail
