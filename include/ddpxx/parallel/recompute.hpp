// ddpxx/parallel/recompute.hpp — activation checkpointing around the layers of any strategy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <ddpxx/layers/recompute.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/parallel/recompute_config.hpp>

namespace ddpxx {

namespace detail {
/// Of a strategy that derives from a Recompute too.
template <class S>
inline constexpr bool recomputes = requires { requires S::kRecomputes; };
}  // namespace detail

/// `Strategy`, with the activations of layers dropped after forward and computed again in backward. The strategy's own
/// work stays outermost: parameters are gathered once for the second run and its backward.
/// Results equal the strategy's bit for bit, with dropout too, and with layers that change their buffers, such as batch
/// norm's running statistics: after backward these are as after one run.
template <ParallelStrategy Strategy>
class Recompute {
  static_assert(!detail::recomputes<Strategy>, "Recompute<Recompute<S>>: once is enough, a layer is run again once");

 public:
  struct Config {
    typename Strategy::Config strategy = {};
    RecomputeConfig recompute = {};
  };

  static constexpr bool kRecomputes = true;
  static constexpr bool kRanksDrift = LetsRanksDrift<Strategy>;
  static constexpr bool kStepsInBackward = steps_in_backward<Strategy>;

  Recompute(const Config& config, Group& group) : config_{config.recompute}, strategy_{config.strategy, group} {}

  void step_in_backward(StepSegment step)
    requires OffersStepInBackward<Strategy>
  {
    strategy_.step_in_backward(std::move(step));
  }
  void attach(FlatModel& model) {
    strategy_.attach(model);
    const auto number = [this](const std::vector<const Layer*>& layers) {
      for (std::size_t i = 0; i < layers.size(); ++i) index_of_[layers[i]] = i;
    };
    number(model.layers());
    if constexpr (CopiesLayers<Strategy>)
      for (const auto& layers : strategy_.layers_of_replicas()) number(layers);
  }
  std::span<const Slice> slices() const { return strategy_.slices(); }
  const Arena& trainable() const { return strategy_.trainable(); }
  const Arena& frozen() const { return strategy_.frozen(); }

  template <class Next, class... Args>
  auto around(Layers layers, Next&& next, Args&&... args) {
    if (!chosen(layers)) return strategy_.around(layers, std::forward<Next>(next), std::forward<Args>(args)...);
    return strategy_.around(
        layers,
        [this, layers, next = std::forward<Next>(next)](auto&&... inputs) mutable {
          return recompute_.around(layers, next, std::forward<decltype(inputs)>(inputs)...);
        },
        std::forward<Args>(args)...);
  }
  /// Where the segment that begins with layer `first` of a row ends. As in checkpoint_sequential the last one takes
  /// what is left over.
  std::size_t segment_end(std::size_t first, std::size_t layers) const {
    if (config_.policy != RecomputeConfig::Policy::segments) return first + 1;
    const auto size = std::max<std::size_t>(1, layers / config_.count);
    return first / size + 1 >= config_.count ? layers : first + size;
  }
  template <class Work, class... Inputs>
  at::Tensor keep(Work& work, const Inputs&... inputs) {
    if (config_.policy != RecomputeConfig::Policy::selective) return work(inputs...);
    return recompute_.keep(work, inputs...);
  }
  auto runner() { return LayerRunner{*this}; }

  template <class Model, class Batch, class Compute>
  at::Tensor forward(Model& model, const Batch& batch, Compute&& compute) {
    static_assert(RunsLayers<Model, LayerRunner<Recompute>, Batch>,
                  "Recompute needs a model that calls its layers through the runner: write `template <class Run> Loss "
                  "forward(Run& run, const Batch& batch)`, and in it `x = run(*block, x)`");
    return strategy_.forward(model, batch, [&](auto& own_model, auto&, const auto& own_batch) {
      auto run = runner();
      return compute(own_model, run, own_batch);
    });
  }

  void begin_backward(Sync sync) { strategy_.begin_backward(sync); }
  void finish_backward() { strategy_.finish_backward(); }
  void finish_step() { strategy_.finish_step(); }
  void wait_pending() { strategy_.wait_pending(); }
  at::Tensor sum_over_shards(at::Tensor value) const { return strategy_.sum_over_shards(std::move(value)); }
  auto gathered() { return strategy_.gathered(); }
  void make_whole() { strategy_.make_whole(); }
  /// What is recomputed around; for Join, which must be told of it.
  Strategy& strategy() noexcept { return strategy_; }
  static std::int64_t layers_of_unit(const Config& config, std::int64_t bytes)
    requires PlansUnits<Strategy>
  {
    return Strategy::layers_of_unit(config.strategy, bytes);
  }
  static std::int64_t layers_of_segment(const Config& config, std::int64_t bytes)
    requires PlansSegments<Strategy>
  {
    return Strategy::layers_of_segment(config.strategy, bytes);
  }
  /// What the strategy refuses, for whoever asks before there is a group.
  static void check(const Config& config)
    requires ChecksConfig<Strategy>
  {
    Strategy::check(config.strategy);
  }
  static void check_step_in_backward(const Config& config)
    requires ChecksStepInBackward<Strategy>
  {
    Strategy::check_step_in_backward(config.strategy);
  }
  void resume_at(std::int64_t step)
    requires ResumesAtStep<Strategy>
  {
    strategy_.resume_at(step);
  }
  auto take_call_hash()
    requires VerifiesCalls<Strategy>
  {
    return strategy_.take_call_hash();
  }

 private:
  bool chosen(Layers layers) const {
    const auto found = index_of_.find(layers.front());
    const auto index = found == index_of_.end() ? 0 : found->second;
    if (config_.policy == RecomputeConfig::Policy::none) return false;
    if (config_.chosen) return config_.chosen(index);
    return config_.policy != RecomputeConfig::Policy::every || index % std::max<std::size_t>(config_.count, 1) == 0;
  }

  RecomputeConfig config_;
  Strategy strategy_;
  RecomputeCall recompute_;
  std::map<const Layer*, std::size_t> index_of_;
};

}  // namespace ddpxx
