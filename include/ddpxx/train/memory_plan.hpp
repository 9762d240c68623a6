// ddpxx/train/memory_plan.hpp — how much memory a rank of a run will need, known before the run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <type_traits>
#include <utility>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/recording.hpp>
#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/flat/live_bytes.hpp>
#include <ddpxx/flat/sizes_only.hpp>
#include <ddpxx/nn/concept.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/optim/ema.hpp>
#include <ddpxx/optim/in_parts.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/precision/concept.hpp>
#include <ddpxx/train/decay_rule.hpp>

namespace ddpxx {

/// Bytes of tensors that one rank needs at most, by what they are for. Beside them a process has its libraries, the
/// backend's own buffers, those that a kernel has while it runs, the copy of a snapshot that is written in the
/// background and, on a CPU, gaps in its heap.
struct MemoryPlan {
  std::int64_t parameters = 0;   ///< At rest: what the model computes with, and copies that the optimizer steps.
  std::int64_t gradients = 0;    ///< At rest: none where parameters are stepped in backward.
  std::int64_t optimizer = 0;    ///< At rest: its state, and the parameters' average if one is kept.
  std::int64_t buckets = 0;      ///< In a step, for a batch of any size: gathered layers, gradients that are sent.
  std::int64_t activations = 0;  ///< In a step, in proportion to the batch.
  std::int64_t inputs = 0;       ///< The batches of a step.

  std::int64_t states() const { return parameters + gradients + optimizer; }
  std::int64_t total() const { return states() + buckets + activations + inputs; }
  /// The largest batch with which total() is at most `bytes`, where this is the plan of batches of `batch_size`
  /// samples; 0 where no batch is that small.
  std::int64_t largest_batch(std::int64_t bytes, std::int64_t batch_size) const {
    const auto of_samples = static_cast<double>(activations + inputs) / static_cast<double>(batch_size);
    const auto left = static_cast<double>(bytes - states() - buckets);
    if (of_samples <= 0) return left < 0 ? 0 : batch_size;  // nothing depends on the batch
    return left < of_samples ? 0 : static_cast<std::int64_t>(left / of_samples);
  }
};

/// The settings of a run that decide how much memory a rank needs.
template <class Strategy, class Precision, class Optimizer>
struct PlannedRun {
  std::int64_t world_size = 1;
  std::int64_t layers = 1;  ///< Number of the model's layers that repeat.
  std::int64_t batch_size = 8;
  std::int64_t accumulation_steps = 1;
  double ema_decay = 0.0;
  typename Optimizer::Config optimizer = {};
  typename Precision::Config precision = {};
  typename Strategy::Config strategy = {};
  std::int64_t period = 1;         ///< Number of layers after which the policy of recompute repeats: the K of every:K.
  std::int64_t probe_samples = 8;  ///< The larger of the two batches that are tried.
};

namespace detail {

/// What was measured on a model of some layers with a batch of some size.
struct MemoryProbe {
  MemoryPlan rest;       ///< The states, and the inputs of one batch.
  double saved = 0;      ///< Beside the states, when forward has ended.
  double peak = 0;       ///< Beside the states, in a whole step.
  double kept = 0;       ///< The part of `peak` that a step leaves to the next.
  double gradients = 0;  ///< All of this rank, where they have memory only in a step.
};

/// Two steps on a model that is smaller than the real one. The second is measured: the first fills the pools of
/// buffers, and shows strategies the order of the layers.
template <class Strategy, class Precision, class Optimizer, class MakeModel, class MakeBatch>
MemoryProbe probe_memory(const PlannedRun<Strategy, Precision, Optimizer>& run, std::int64_t layers,
                         std::int64_t samples, const MakeModel& make_model, const MakeBatch& make_batch) {
  LiveBytes live;
  const auto model = make_model(layers);
  const Precision precision{run.precision};
  FlatModel flat{*model, decay_rule(*model), precision.formats()};
  Group group = recording_group(0, static_cast<int>(run.world_size), std::make_shared<Recording>(), flat.device());
  MemoryProbe probe;
  {
    std::optional<std::conditional_t<steps_in_backward<Strategy>, OptimizerInParts<Optimizer>, Optimizer>> optimizer;
    Strategy strategy{run.strategy, group};
    if constexpr (steps_in_backward<Strategy>)
      strategy.step_in_backward([&](std::size_t segment) { optimizer->step(segment, 0.0); });
    strategy.attach(flat);
    const auto& gradients = strategy.trainable().gradients();
    probe.rest.gradients = gradients.defined() ? static_cast<std::int64_t>(gradients.nbytes()) : 0;
    probe.rest.parameters = live.current() - probe.rest.gradients;
    if constexpr (steps_in_backward<Strategy>)
      optimizer.emplace(run.optimizer, strategy.trainable());
    else
      optimizer.emplace(run.optimizer, strategy.slices());
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
      if constexpr (!steps_in_backward<Strategy>) optimizer->step(0.0);
      if (average) average->update();
      strategy.finish_step();
    }
    probe.peak = static_cast<double>(live.peak() + live.peak_elsewhere()) - base;
    probe.kept = static_cast<double>(live.current()) - base;
    if constexpr (steps_in_backward<Strategy>) {
      const auto& arena = strategy.trainable();
      const auto elements = arena.numel() / (arena[0].gradient.defined() ? 1 : arena.pieces());
      probe.gradients = static_cast<double>(elements) * static_cast<double>(arena.options().dtype().itemsize());
    }
  }
  group.leave();
  return probe;
}

/// How many layers a strategy takes together: in units, which repeat exactly, and in buckets that are stepped in
/// backward, which are cut by bytes.
struct LayersTogether {
  std::int64_t in_unit = 1;
  std::int64_t in_bucket = 1;
};

template <class Strategy>
concept StepsBuckets = steps_in_backward<Strategy> && PlansSegments<Strategy>;

template <class Strategy, class Precision, class Optimizer, class MakeModel>
LayersTogether layers_taken_together(const PlannedRun<Strategy, Precision, Optimizer>& run,
                                     const MakeModel& make_model) {
  const auto bytes_of_layer = [&] {
    const auto model = make_model(1);
    std::int64_t bytes = 0;
    const FlatModel flat{*model};
    for (const auto& parameter : flat.trainable())
      if (parameter.unit != FlatModel::kRoot) bytes += static_cast<std::int64_t>(parameter.tensor.nbytes());
    return bytes;
  };
  if constexpr (PlansUnits<Strategy>)
    return {.in_unit = Strategy::layers_of_unit(run.strategy, bytes_of_layer())};
  else if constexpr (StepsBuckets<Strategy>)
    return {.in_bucket = std::max<std::int64_t>(
                1, Strategy::segment_bytes(run.strategy) / std::max<std::int64_t>(1, bytes_of_layer()))};
  else
    return {};
}

}  // namespace detail

/// What a rank of `run` will need, by trying small models on this process alone: no other process is started, no byte
/// is sent, and a model of thousands of layers is never built.
///
/// `make_model(layers)` yields a shared_ptr to the model with so many layers, `make_batch(samples)` a batch of so many
/// samples. The strategy itself holds models of two depths over a group of the planned size, and takes two steps with
/// each of two batches. On a CPU their operations take memory and compute nothing (see SizesOnly), unless the model's
/// memory depends on values. Bytes are counted, and carried on along the depth and the batch, with which they grow in
/// proportion. The depths are large enough that the strategies' pools have grown full; buckets that hold many layers
/// make them larger. What steps in backward is planned with its gradients in `buckets`, a few segments at a time; where
/// those are cut by bytes, to within half a segment.
/// Errors  those of the run itself: settings that do not fit the number of ranks.
template <class Strategy, class Precision, class Optimizer, class MakeModel, class MakeBatch>
MemoryPlan plan_memory(const PlannedRun<Strategy, Precision, Optimizer>& run, const MakeModel& make_model,
                       const MakeBatch& make_batch) {
  // Memory repeats with the layers that a strategy takes together, and with those that a policy of recompute does.
  const auto together = detail::layers_taken_together(run, make_model);
  const auto period = std::clamp<std::int64_t>(std::lcm(run.period, together.in_unit), 1, run.layers);
  const auto pools_are_full = std::max<std::int64_t>(5, 3 * std::min(together.in_bucket, run.layers));
  // The shallow model has as many layers beyond a whole number of periods as the whole depth has, and a last bucket
  // that is about as full. Where both together would make it much deeper, the bucket may be half a bucket fuller or
  // emptier.
  const auto both = std::lcm(period, together.in_bucket);
  const auto step = both <= pools_are_full ? both : period;
  const auto shallow = pools_are_full + ((run.layers - pools_are_full) % step + step) % step;
  const auto deep = shallow + period;
  const auto further = run.layers <= deep ? 0.0 : static_cast<double>(run.layers - deep) / static_cast<double>(period);

  MemoryPlan plan;
  // The whole depth with so many samples. What is saved for backward grows as deep models and large batches do, even
  // where the peak of a small one lies elsewhere.
  bool needs_arithmetic = false;
  const auto probe = [&](std::int64_t samples) {
    const auto with = [&](std::int64_t layers) {
      if (!needs_arithmetic) {
        try {
          const SizesOnly no_arithmetic;
          return detail::probe_memory(run, layers, samples, make_model, make_batch);
        } catch (const NeedsValues&) {
          needs_arithmetic = true;
        }
      }
      return detail::probe_memory(run, layers, samples, make_model, make_batch);
    };
    auto probed = with(std::min(run.layers, deep));
    const auto less = further > 0 ? with(shallow) : probed;
    for (auto part : {&MemoryPlan::parameters, &MemoryPlan::gradients, &MemoryPlan::optimizer})
      plan.*part = probed.rest.*part +
                   static_cast<std::int64_t>(further * static_cast<double>(probed.rest.*part - less.rest.*part));
    plan.inputs = probed.rest.inputs * run.batch_size * run.accumulation_steps / samples;
    auto grows = std::max(probed.peak - less.peak, probed.saved - less.saved);
    if constexpr (detail::StepsBuckets<Strategy>) {
      // How large the pool's buffers are depends on where buckets end, and how many there are is settled by now.
      grows -= probed.kept - less.kept;
      if (run.accumulation_steps > 1) grows += probed.gradients - less.gradients;
    }
    probed.peak += further * grows;
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
