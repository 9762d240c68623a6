// ddpxx/parallel/concept.hpp — the door of the strategies: how parameters and gradients are held over the ranks.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/layers/layer.hpp>

namespace ddpxx {

/// Whether a backward pass ends a step (`now`) or is one of several that are added up first (`defer`).
enum class Sync { defer, now };

namespace detail {
struct ProbeCall {
  at::Tensor operator()(const at::Tensor& x) const { return x; }
};
struct ProbeModel {};
struct ProbeBatch {};
struct ProbeCompute {
  at::Tensor operator()(auto& /*model*/, auto& /*run*/, const auto& /*batch*/) const { return {}; }
};
}  // namespace detail

template <class S>
concept BuiltFromConfigAndGroup =
    requires { typename S::Config; } && std::constructible_from<S, const typename S::Config&, Group&>;
template <class S>
concept AttachesModel = requires(S s, FlatModel& model) { s.attach(model); };
template <class S>
concept OffersSlices = requires(const S& s) {
  { s.slices() } -> std::convertible_to<std::span<const Slice>>;
};
template <class S>
concept HoldsArenas = requires(const S& s) {
  { s.trainable() } -> std::same_as<const Arena&>;
  { s.frozen() } -> std::same_as<const Arena&>;
};
template <class S>
concept WrapsLayers = requires(S s, Layers layers, detail::ProbeCall call, const at::Tensor& x) {
  { s.around(layers, call, x) } -> std::convertible_to<at::Tensor>;
  s.runner();
};
template <class S>
concept CallsModel =
    requires(S s, detail::ProbeModel& model, const detail::ProbeBatch& batch, detail::ProbeCompute compute) {
      { s.forward(model, batch, compute) } -> std::same_as<at::Tensor>;
    };
template <class S>
concept BracketsBackward = requires(S s, Sync sync) {
  s.begin_backward(sync);
  s.finish_backward();
};
template <class S>
concept FinishesStep = requires(S s) {
  s.finish_step();
  s.settle();
};
template <class S>
concept SumsOverShards = requires(const S& s, at::Tensor value) {
  { s.sum_over_shards(value) } -> std::same_as<at::Tensor>;
};
template <class S>
concept AssemblesPieces = requires(const S& s, at::Tensor whole, const at::Tensor& piece) { s.assemble(whole, piece); };
template <class S>
concept GathersParameters = requires(S s) {
  s.gathered();
  s.make_whole();
};

/// What steps the slices of a segment of `trainable()`.
using StepSegment = std::function<void(std::size_t segment)>;

/// Strategies that say when the gradients of a segment are complete: see StepInBackward. Told before attach(), they
/// call `step` once a step for every segment, in an order that is the same on all ranks, and hold no gradients then.
template <class S>
concept OffersStepInBackward = requires(S s, StepSegment step) { s.step_in_backward(step); };

/// Whether a trainer is to leave the steps to `S`.
template <class S>
inline constexpr bool steps_in_backward = requires { requires S::kStepsInBackward; };

/// Optional: `static void check(const Config&)`, which throws what the strategy refuses. A trainer calls it before it
/// sends anything.
template <class S>
concept ChecksItsConfig = requires(const typename S::Config& config) { S::check(config); };
/// Optional: `void ranks_drift() const`, which does nothing, of a strategy after whose steps the ranks hold different
/// parameters. Snapshots then hold those of rank 0; without it they take parts of the model from each rank.
template <class S>
concept RanksDrift = requires(const S& s) { s.ranks_drift(); };
/// Optional: `void resume_at(std::int64_t step)`, of a strategy that counts steps. It goes on as after that step.
template <class S>
concept ResumesAtStep = requires(S s, std::int64_t step) { s.resume_at(step); };
/// Optional: `std::uint32_t take_call_hash()`, a number for the layers that this rank has called since the last time.
/// A trainer compares it over the ranks, which must call the same layers in the same order.
template <class S>
concept HashesCalls = requires(S s) {
  { s.take_call_hash() } -> std::convertible_to<std::uint32_t>;
};

/// A strategy is built from its own config and a group; it is handed the flat model, never a list of tensors.
template <class S>
concept ParallelStrategy = BuiltFromConfigAndGroup<S> && AttachesModel<S> && OffersSlices<S> && HoldsArenas<S> &&
                           WrapsLayers<S> && CallsModel<S> && BracketsBackward<S> && FinishesStep<S> &&
                           SumsOverShards<S> && AssemblesPieces<S> && GathersParameters<S>;

template <class S>
consteval bool explain_strategy() {
  static_assert(BuiltFromConfigAndGroup<S>,
                "strategy: add `struct Config` and a constructor from (const Config&, Group&)");
  static_assert(AttachesModel<S>, "strategy: add `void attach(FlatModel&)`");
  static_assert(OffersSlices<S>,
                "strategy: add `std::span<const Slice> slices() const`, what this rank's optimizer steps");
  static_assert(
      HoldsArenas<S>,
      "strategy: add `const Arena& trainable() const` and `const Arena& frozen() const`, the memory it holds");
  static_assert(WrapsLayers<S>,
                "strategy: add `auto around(Layers, Next, Args...)`, what happens about a call of layers, and "
                "`auto runner()`, the LayerRunner that the model's forward is given");
  static_assert(CallsModel<S>,
                "strategy: add `template <class Model, class Batch, class Compute> at::Tensor forward(Model& model, "
                "const Batch& batch, Compute&& compute)`, which returns compute(model, run, batch) with its runner");
  static_assert(BracketsBackward<S>, "strategy: add `void begin_backward(Sync)` and `void finish_backward()`");
  static_assert(
      FinishesStep<S>,
      "strategy: add `void finish_step()`, after the optimizer has stepped the slices, and `void settle()`, which "
      "waits until nothing that this began is under way");
  static_assert(SumsOverShards<S>, "strategy: add `at::Tensor sum_over_shards(at::Tensor) const`");
  static_assert(AssemblesPieces<S>,
                "strategy: add `void assemble(at::Tensor whole, const at::Tensor& piece) const`, which fills a segment "
                "from all ranks' pieces of it");
  static_assert(GathersParameters<S>,
                "strategy: add `auto gathered()`, a scope in which all parameters are whole, and `void make_whole()`, "
                "after which they stay so, on every rank the same, until the next step");
  return true;
}

}  // namespace ddpxx
