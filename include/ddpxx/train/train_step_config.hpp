// ddpxx/train/train_step_config.hpp — the settings of one optimizer step with these types.
#pragma once

#include <ddpxx/optim/parameter_groups_config.hpp>
#include <ddpxx/optim/plateau_config.hpp>
#include <ddpxx/train/step_capture.hpp>

namespace ddpxx {

/// What a TrainStep does beside the forward and backward pass.
template <class Optimizer, class Precision, class Strategy>
struct TrainStepConfig {
  double grad_norm_clip = 1.0;   ///< Largest global gradient norm; 0 does not clip.
  double grad_value_clip = 0.0;  ///< Largest absolute value of a gradient's elements, clipped first; 0 does not clip.
  bool fused_clip = false;       ///< Clip by the norm in the optimizer's own pass, if the optimizer can.
  double spike_factor = 0.0;     ///< Leave out steps by a `SpikeGuard` of this factor; 0 leaves out none.
  double ema_decay = 0.0;        ///< Decay rate of a moving average of the parameters; 0 keeps none.
  bool detect_anomaly = false;   ///< Let an `AnomalyDetector` watch the forward and backward passes.
  bool rank_times = false;       ///< Measure `StepDone::rank_times`, where there are several ranks.
  typename Optimizer::Config optimizer = {};
  typename Precision::Config precision = {};
  typename Strategy::Config strategy = {};
  ParameterGroupsConfig parameter_groups = {};
  PlateauConfig plateau = {};    ///< How note_evaluation() lowers the learning rate; not at all without a metric.
  MakeStepCapture capture = {};  ///< Makes what captures steps, which are then replayed; empty captures none.
};

}  // namespace ddpxx
