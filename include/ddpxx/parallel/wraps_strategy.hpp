// ddpxx/parallel/wraps_strategy.hpp — a strategy around another one, to which it forwards every function.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/parallel/replicas.hpp>

namespace ddpxx {

/// Base of strategies around another one. It forwards all functions of a strategy, the optional ones where `Inner` has
/// them, so that the derived strategy declares again only what it changes. `kInnerConfig` says where in `OwnConfig` the
/// config of `Inner` is, as a pointer to a member; by default the two are one type. A strategy that changes gradients
/// in its finish_backward() declares `void step_in_backward(StepSegment) = delete;`, since StepInBackward around it
/// would have stepped the parameters, and freed the gradients, by then.
template <class Inner, class OwnConfig = typename Inner::Config, auto kInnerConfig = std::identity{}>
class WrapsStrategy {
  static_assert(ParallelStrategy<Inner> && explain_strategy<Inner>());

 public:
  using Config = OwnConfig;
  static constexpr bool kRanksDrift = LetsRanksDrift<Inner>;
  static constexpr bool kStepsInBackward = steps_in_backward<Inner>;
  static constexpr bool kRecomputes = recomputes_layers<Inner>;

  /// What comes after the group is given to the constructor of `Inner` as it is.
  template <class... More>
  WrapsStrategy(const Config& config, Group& group, const More&... more)
      : inner_{inner_config(config), group, more...} {}
  WrapsStrategy(const WrapsStrategy&) = delete;
  WrapsStrategy& operator=(const WrapsStrategy&) = delete;

  /// The strategy that this one is around.
  Inner& inner() noexcept { return inner_; }

  void attach(FlatModel& model) { inner_.attach(model); }
  std::span<const Slice> slices() const { return inner_.slices(); }
  const Arena& trainable() const { return inner_.trainable(); }
  const Arena& frozen() const { return inner_.frozen(); }

  template <class Next, class... Args>
  decltype(auto) around(Layers layers, Next&& next, Args&&... args) {
    return inner_.around(layers, std::forward<Next>(next), std::forward<Args>(args)...);
  }
  auto runner() { return inner_.runner(); }
  template <class Model, class Batch, class Compute>
  at::Tensor forward(Model& model, const Batch& batch, Compute&& compute) {
    return inner_.forward(model, batch, std::forward<Compute>(compute));
  }

  void begin_backward(Sync sync) { inner_.begin_backward(sync); }
  void finish_backward() { inner_.finish_backward(); }
  void finish_step() { inner_.finish_step(); }
  void wait_pending() { inner_.wait_pending(); }
  at::Tensor sum_over_shards(at::Tensor value) const { return inner_.sum_over_shards(std::move(value)); }
  auto gathered() { return inner_.gathered(); }
  void make_whole() { inner_.make_whole(); }

  static void check(const Config& config)
    requires ChecksConfig<Inner>
  {
    Inner::check(inner_config(config));
  }
  std::uint32_t take_call_hash()
    requires VerifiesCalls<Inner>
  {
    return inner_.take_call_hash();
  }
  void resume_at(std::int64_t step)
    requires ResumesAtStep<Inner>
  {
    inner_.resume_at(step);
  }
  void share_buffers()
    requires SharesBuffers<Inner>
  {
    inner_.share_buffers();
  }
  Replicas replicas()
    requires HoldsReplicas<Inner>
  {
    return inner_.replicas();
  }
  static bool can_be_captured(const Config& config)
    requires CanBeCaptured<Inner>
  {
    return Inner::can_be_captured(inner_config(config));
  }
  static std::int64_t layers_of_unit(const Config& config, std::int64_t bytes)
    requires PlansUnits<Inner>
  {
    return Inner::layers_of_unit(inner_config(config), bytes);
  }
  static std::int64_t segment_bytes(const Config& config)
    requires PlansSegments<Inner>
  {
    return Inner::segment_bytes(inner_config(config));
  }
  std::vector<std::vector<const Layer*>> layers_of_replicas() const
    requires CopiesLayers<Inner>
  {
    return inner_.layers_of_replicas();
  }
  void step_in_backward(StepSegment step)
    requires OffersStepInBackward<Inner>
  {
    inner_.step_in_backward(std::move(step));
  }
  static void check_step_in_backward(const Config& config)
    requires ChecksStepInBackward<Inner>
  {
    Inner::check_step_in_backward(inner_config(config));
  }

 protected:
  ~WrapsStrategy() = default;

 private:
  static const typename Inner::Config& inner_config(const Config& config) { return std::invoke(kInnerConfig, config); }

  Inner inner_;
};

/// Returns the strategy inside all wrappers, or `strategy` itself if it wraps none.
template <class Strategy>
auto& innermost(Strategy& strategy) {
  if constexpr (requires { strategy.inner(); })
    return innermost(strategy.inner());
  else
    return strategy;
}

}  // namespace ddpxx
