// ddpxx/parallel/recompute.hpp — activation checkpointing for the layers of any strategy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/layers/recompute.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/parallel/recompute_config.hpp>
#include <ddpxx/parallel/wraps_strategy.hpp>

namespace ddpxx {

/// The settings of a strategy in Recompute.
template <class Strategy>
struct RecomputedConfig {
  typename Strategy::Config inner = {};
  RecomputeConfig recompute = {};

  static constexpr auto describe() { return fields(flatten<&RecomputedConfig::inner>()); }
};

/// `Strategy`, with the activations of layers dropped after forward and computed again in backward. What the strategy
/// does around a layer is done around both runs: FSDP gathers the parameters once for the second run and its backward.
/// Results equal those of `Strategy` bit for bit, also with dropout, and with layers that change their buffers, such as
/// batch norm's running statistics: after backward the buffers are as after one run.
template <ParallelStrategy Strategy>
class Recompute : public WrapsStrategy<Strategy, RecomputedConfig<Strategy>, &RecomputedConfig<Strategy>::inner> {
  using Wraps = WrapsStrategy<Strategy, RecomputedConfig<Strategy>, &RecomputedConfig<Strategy>::inner>;
  static_assert(!recomputes_layers<Strategy>, "Recompute<Recompute<S>>: once is enough, a layer is run again once");

 public:
  using Config = RecomputedConfig<Strategy>;
  using Wraps::inner;
  static constexpr bool kRecomputes = true;

  Recompute(const Config& config, Group& group) : Wraps{config, group}, config_{config.recompute} {}

  /// See CanBeCaptured. A layer that is run again sets the generators of its random numbers.
  static bool can_be_captured(const Config& config)
    requires CanBeCaptured<Strategy>
  {
    return config.recompute.policy == RecomputeConfig::Policy::none && Strategy::can_be_captured(config.inner);
  }

  /// From the next step on, the layers for which `chosen` is true are recomputed, whatever the policy says, unless it
  /// is `none`. Layers count from 0 in the order in which the model registers them. With the policy `segments`,
  /// `chosen` is asked for the first layer of each segment, and decides for the whole segment.
  /// Ranks   Local; all ranks choose the same layers.
  void recompute_if(std::function<bool(std::size_t layer)> chosen) { chosen_ = std::move(chosen); }

  void attach(FlatModel& model) {
    Wraps::attach(model);
    const auto number = [this](const std::vector<const Layer*>& layers) {
      for (std::size_t i = 0; i < layers.size(); ++i) index_of_[layers[i]] = i;
    };
    number(model.layers());
    if constexpr (CopiesLayers<Strategy>)
      for (const auto& layers : inner().layers_of_replicas()) number(layers);
  }

  template <class Next, class... Args>
  auto around(Layers layers, Next&& next, Args&&... args) {
    if (!is_chosen(layers)) return inner().around(layers, std::forward<Next>(next), std::forward<Args>(args)...);
    return inner().around(
        layers,
        [this, layers, next = std::forward<Next>(next)](auto&&... inputs) mutable {
          return recompute_.around(layers, next, std::forward<decltype(inputs)>(inputs)...);
        },
        std::forward<Args>(args)...);
  }
  /// See CutsRows. As in PyTorch's checkpoint_sequential, the last segment has the remaining layers.
  std::size_t segment_end(std::size_t first, std::size_t layers) const {
    if (config_.policy != RecomputeConfig::Policy::segments) return first + 1;
    const auto size = std::max<std::size_t>(1, layers / count());
    return first / size + 1 >= count() ? layers : first + size;
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
    return inner().forward(model, batch, [&](auto& own_model, auto&, const auto& own_batch) {
      auto run = runner();
      return compute(own_model, run, own_batch);
    });
  }

 private:
  bool is_chosen(Layers layers) const {
    const auto found = index_of_.find(layers.front());
    const auto index = found == index_of_.end() ? 0 : found->second;
    if (config_.policy == RecomputeConfig::Policy::none) return false;
    if (chosen_) return chosen_(index);
    return config_.policy != RecomputeConfig::Policy::every || index % count() == 0;
  }
  std::size_t count() const noexcept { return static_cast<std::size_t>(std::max<std::int64_t>(config_.count, 1)); }

  RecomputeConfig config_;
  std::function<bool(std::size_t layer)> chosen_;
  RecomputeCall recompute_;
  std::map<const Layer*, std::size_t> index_of_;
};

}  // namespace ddpxx
