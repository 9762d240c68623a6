// ddpxx/train/memory_plan.hpp — how much memory a rank of a run will need, known before the run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/recording.hpp>
#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/flat/live_bytes.hpp>
#include <ddpxx/nn/concept.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/optim/ema.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/precision/concept.hpp>

namespace ddpxx {

/// Bytes that one rank needs at most, by what they are for. The backend's own buffers come on top.
struct MemoryPlan {
  std::int64_t parameters = 0;   ///< At rest: what the model computes with, and copies that the optimizer steps.
  std::int64_t gradients = 0;    ///< At rest.
  std::int64_t optimizer = 0;    ///< At rest: its state, and the parameters' average if one is kept.
  std::int64_t buckets = 0;      ///< Of a step, whatever the batch: gathered layers, gradients on their way.
  std::int64_t activations = 0;  ///< Of a step, in proportion to the batch.
  std::int64_t inputs = 0;       ///< The batches of a step.

  std::int64_t states() const { return parameters + gradients + optimizer; }
  std::int64_t total() const { return states() + buckets + activations + inputs; }
};

/// The run that is asked about. What it leaves out does not change a rank's memory.
template <class Strategy, class Precision, class Optimizer>
struct PlannedRun {
  std::int64_t world_size = 1;
  std::int64_t layers = 1;  ///< Those that repeat.
  std::int64_t batch_size = 8;
  std::int64_t accumulation_steps = 1;
  double ema_decay = 0.0;
  typename Optimizer::Config optimizer = {};
  typename Precision::Config precision = {};
  typename Strategy::Config strategy = {};
  std::int64_t period = 1;         ///< After how many layers the same begins again: the K of recompute every:K.
  std::int64_t probe_samples = 8;  ///< The larger of the two batches that are tried.
};

namespace detail {

/// What was measured on a model of some layers with a batch of some size.
struct MemoryProbe {
  MemoryPlan rest;   ///< The states, and the inputs of one batch.
  double saved = 0;  ///< Beside the states, when forward has ended.
  double peak = 0;   ///< Beside the states, in a whole step.
};

/// Two steps on a model that is smaller than the real one. The second is measured: the first fills the pools of
/// buffers, and shows strategies the order of the layers.
template <class Strategy, class Precision, class Optimizer, class MakeModel, class MakeBatch>
MemoryProbe probe_memory(const PlannedRun<Strategy, Precision, Optimizer>& run, std::int64_t layers,
                         std::int64_t samples, const MakeModel& make_model, const MakeBatch& make_batch) {
  LiveBytes live;
  const auto model = make_model(layers);
  const Precision precision{run.precision};
  FlatModel flat{*model, {}, precision.formats()};
  Group group = recording_group(0, static_cast<int>(run.world_size), std::make_shared<Recording>(), flat.device());
  MemoryProbe probe;
  {
    Strategy strategy{run.strategy, group};
    strategy.attach(flat);
    const auto& gradients = strategy.trainable().gradients();
    probe.rest.gradients = gradients.defined() ? static_cast<std::int64_t>(gradients.nbytes()) : 0;
    probe.rest.parameters = live.current() - probe.rest.gradients;
    Optimizer optimizer{run.optimizer, strategy.slices()};
    std::optional<EMA> average;
    if (run.ema_decay > 0) average.emplace(EMAConfig{.decay = run.ema_decay}, strategy.slices());
    probe.rest.optimizer = live.current() - probe.rest.parameters - probe.rest.gradients;
    const auto batch = make_batch(samples).to(flat.device());
    probe.rest.inputs = live.current() - probe.rest.states();
    const auto base = static_cast<double>(live.current());
    model->train();
    const auto backward = [&](Sync sync) {
      strategy.begin_backward(sync);
      const auto loss = [&] {
        [[maybe_unused]] const auto scope = precision.forward_scope(flat.device().type());
        return strategy.forward(*model, batch, [](auto& own_model, auto& layer_runner, const auto& own_batch) {
          return compute_loss(own_model, layer_runner, own_batch).sum;
        });
      }();
      probe.saved = static_cast<double>(live.current()) - base;
      loss.backward();
      strategy.finish_backward();
    };
    for (int step = 0; step < 2; ++step) {
      live.reset_peak();
      if (run.accumulation_steps > 1) backward(Sync::defer);
      backward(Sync::now);
      optimizer.step(0.0);
      if (average) average->update();
      strategy.finish_step();
    }
    probe.peak = static_cast<double>(live.peak() + live.peak_elsewhere()) - base;
  }
  group.leave();
  return probe;
}

template <class Strategy, class Precision, class Optimizer, class MakeModel>
std::int64_t layers_taken_together(const PlannedRun<Strategy, Precision, Optimizer>& run, const MakeModel& make_model) {
  if constexpr (requires { Strategy::layers_of_unit(run.strategy, std::int64_t{}); }) {
    const auto model = make_model(1);
    std::int64_t bytes = 0;
    const FlatModel flat{*model};
    for (const auto& parameter : flat.trainable())
      if (parameter.unit != FlatModel::kRoot) bytes += static_cast<std::int64_t>(parameter.tensor.nbytes());
    return Strategy::layers_of_unit(run.strategy, bytes);
  }
  return 1;
}

}  // namespace detail

/// What a rank of `run` will need, by trying small models on this process alone: no other process is started, no byte
/// is sent, and a model of thousands of layers is never built.
///
/// `make_model(layers)` yields a shared_ptr to the model with so many layers, `make_batch(samples)` a batch of so many
/// samples. The strategy itself holds models of two depths over a group of the planned size, and takes two steps with
/// each of two batches; bytes are counted, and carried on along the depth and the batch, with which they grow in
/// proportion. The depths are large enough that the strategies' pools have grown full.
/// Errors  those of the run itself: settings that do not fit the number of ranks.
template <class Strategy, class Precision, class Optimizer, class MakeModel, class MakeBatch>
MemoryPlan plan_memory(const PlannedRun<Strategy, Precision, Optimizer>& run, const MakeModel& make_model,
                       const MakeBatch& make_batch) {
  constexpr std::int64_t kPoolsAreFull = 5;
  // Memory repeats with the layers that a strategy takes together, and with those that a policy of recompute does.
  const auto period =
      std::clamp<std::int64_t>(std::lcm(run.period, detail::layers_taken_together(run, make_model)), 1, run.layers);
  // As far from a whole number of periods as the whole depth is.
  const auto shallow = kPoolsAreFull + ((run.layers - kPoolsAreFull) % period + period) % period;
  const auto deep = shallow + period;
  const auto further = run.layers <= deep ? 0.0 : static_cast<double>(run.layers - deep) / static_cast<double>(period);

  MemoryPlan plan;
  // The whole depth with so many samples. What is saved for backward grows as deep models and large batches do, even
  // where the peak of a small one lies elsewhere.
  const auto probe = [&](std::int64_t samples) {
    const auto with = [&](std::int64_t layers) {
      return detail::probe_memory(run, layers, samples, make_model, make_batch);
    };
    auto probed = with(std::min(run.layers, deep));
    const auto less = further > 0 ? with(shallow) : probed;
    for (auto part : {&MemoryPlan::parameters, &MemoryPlan::gradients, &MemoryPlan::optimizer})
      plan.*part = probed.rest.*part +
                   static_cast<std::int64_t>(further * static_cast<double>(probed.rest.*part - less.rest.*part));
    plan.inputs = probed.rest.inputs * run.batch_size * run.accumulation_steps / samples;
    probed.peak += further * std::max(probed.peak - less.peak, probed.saved - less.saved);
    probed.saved += further * (probed.saved - less.saved);
    return probed;
  };
  const auto many = std::max<std::int64_t>(2, std::min(run.batch_size, run.probe_samples)), few = many / 2;
  const auto small = probe(few), large = probe(many);
  const auto per_sample =
      std::max(large.peak - small.peak, large.saved - small.saved) / static_cast<double>(many - few);
  plan.activations = static_cast<std::int64_t>(per_sample * static_cast<double>(run.batch_size));
  plan.buckets = static_cast<std::int64_t>(std::max(large.peak - per_sample * static_cast<double>(many), 0.0));
  return plan;
}

}  // namespace ddpxx
