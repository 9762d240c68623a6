// ddpxx/parallel/concept.hpp — what a strategy must be able to do: hold parameters and gradients over the ranks.
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
#include <ddpxx/parallel/replicas.hpp>

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
  s.wait_pending();
};
template <class S>
concept SumsOverShards = requires(const S& s, at::Tensor value) {
  { s.sum_over_shards(value) } -> std::same_as<at::Tensor>;
};
template <class S>
concept GathersParameters = requires(S s) {
  s.gathered();
  s.make_whole();
};

/// A strategy decides how parameters, gradients and optimizer state are held over the ranks, and what the ranks send to
/// each other. It is built from its own config and the group. All ranks make the calls below in the same order.
///
/// `attach(model)` is called once, before the optimizer is made. It puts the parameters of the FlatModel into arenas of
/// its making, `trainable()` and `frozen()`. `slices()` are the ranges of `trainable()` that this rank's optimizer
/// steps.
///
/// A step is: for each micro-batch `begin_backward(sync)`, `forward(model, batch, compute)`, autograd's backward pass
/// of the loss that forward returned, `finish_backward()`. `sync` is `Sync::now` for the last micro-batch and
/// `Sync::defer` for those before it, whose gradients are added up. After `finish_backward()` of the last one the
/// gradients of the slices are averages over all ranks. Then the optimizer steps the slices, and `finish_step()` gives
/// the model the new values; it is also called, without a step, when a snapshot has been loaded into the slices. An
/// exception may end a step anywhere: the next `begin_backward()` starts a new one.
///
/// `forward` returns compute(model, run, batch), where `run` is `runner()`. Where the model calls a layer through the
/// runner, the runner calls `around(layers, next, args...)`, which returns next(args...) and may work before and after
/// it. Without gradients, in evaluation and generation, `forward` may be called between steps.
///
/// `wait_pending()` returns when no collective that the strategy has started is still running. `sum_over_shards(value)`
/// sums over the ranks that hold different slices, and returns the same bits on all ranks; where each rank steps
/// everything it returns the value. The scope that `gathered()` returns keeps all parameters whole while it lives;
/// after `make_whole()` they stay whole, and equal on all ranks, until the next step.
///
/// WholeModel has these functions for strategies whose ranks each hold all parameters, and WrapsStrategy for strategies
/// around another one. What else a strategy may have: see the concepts below; a function that is not there costs
/// nothing.
template <class S>
concept ParallelStrategy =
    BuiltFromConfigAndGroup<S> && AttachesModel<S> && OffersSlices<S> && HoldsArenas<S> && WrapsLayers<S> &&
    CallsModel<S> && BracketsBackward<S> && FinishesStep<S> && SumsOverShards<S> && GathersParameters<S>;

/// Optional: `static void check(const Config&)`, which throws an Error with code `config` for settings that the
/// strategy refuses. A trainer calls it on each rank before the ranks send anything; it communicates nothing.
template <class S>
concept ChecksConfig = ParallelStrategy<S> && requires(const typename S::Config& config) { S::check(config); };

/// Optional: `std::uint32_t take_call_hash()`, for a strategy under which a rank that calls other layers than the
/// others, or whose loss uses other layers, would mix their weights or wait forever. It returns a number that depends
/// on the layers called and on those whose gradients were sent since the last call of take_call_hash(), and on their
/// order. A trainer calls it once a step and compares the numbers of all ranks in the step after; ranks whose numbers
/// differ end with an error.
template <class S>
concept VerifiesCalls = ParallelStrategy<S> && requires(S s) {
  { s.take_call_hash() } -> std::convertible_to<std::uint32_t>;
};

/// Optional: `static constexpr bool kRanksDrift = true`, for a strategy after whose steps the parameters of the ranks
/// differ. Snapshots then hold rank 0's parameters; without it each rank writes a part of the model. `make_whole()`
/// must make the ranks equal again.
template <class S>
concept LetsRanksDrift = ParallelStrategy<S> && requires { requires S::kRanksDrift; };

/// Optional: `void resume_at(std::int64_t step)`, for a strategy that counts steps. A trainer calls it on all ranks
/// when it has loaded a snapshot of step `step`: the strategy goes on as if it had taken that many steps.
template <class S>
concept ResumesAtStep = ParallelStrategy<S> && requires(S s, std::int64_t step) { s.resume_at(step); };

/// Optional: `void share_buffers()`, for a strategy that broadcasts rank 0's buffers at the beginning of each step.
/// From the end of a step until then the buffers of the ranks differ; share_buffers() broadcasts rank 0's. A trainer
/// calls it on all ranks before an evaluation and in make_whole().
template <class S>
concept SharesBuffers = ParallelStrategy<S> && requires(S s) { s.share_buffers(); };

/// Optional: `Replicas replicas()`, for a strategy under which several ranks hold equal parameters between two steps.
/// It returns this rank's copies, after the gathers that write them have ended. A trainer compares them where
/// `training.check_replicas_every` wants it.
template <class S>
concept HoldsReplicas = ParallelStrategy<S> && requires(S s) {
  { s.replicas() } -> std::same_as<Replicas>;
};

/// Optional: `static bool can_be_captured(const Config&)`: whether a step starts the same operations on the same memory
/// each time, so that it can be captured once and replayed. It starts no collective, and sets no generator of random
/// numbers. The setting `cuda_graph` needs it.
template <class S>
concept CanBeCaptured = ParallelStrategy<S> && requires(const typename S::Config& config) {
  { S::can_be_captured(config) } -> std::same_as<bool>;
};

/// Optional: `static std::int64_t layers_of_unit(const Config&, std::int64_t bytes)`, for a strategy that holds several
/// layers in one unit of memory. It returns how many layers of `bytes` bytes each a unit has. plan_memory() asks it,
/// and tries models of whole units only.
template <class S>
concept PlansUnits = ParallelStrategy<S> && requires(const typename S::Config& config, std::int64_t bytes) {
  { S::layers_of_unit(config, bytes) } -> std::same_as<std::int64_t>;
};

/// Optional: `static std::int64_t segment_bytes(const Config&)`, for a strategy whose segments are cut by bytes when
/// they are stepped in backward. It returns the maximum size of a segment, apart from the first. plan_memory() asks it,
/// and tries models of at least three segments.
template <class S>
concept PlansSegments = ParallelStrategy<S> && requires(const typename S::Config& config) {
  { S::segment_bytes(config) } -> std::same_as<std::int64_t>;
};

/// Optional: `std::vector<std::vector<const Layer*>> layers_of_replicas() const`, for a strategy that copies the model
/// inside one process. It returns the layers of each copy in the order of the model's own layers, without those of the
/// model itself. Recompute calls it after attach(), so that what is chosen for a layer holds for its copies.
template <class S>
concept CopiesLayers = ParallelStrategy<S> && requires(const S& s) {
  { s.layers_of_replicas() } -> std::same_as<std::vector<std::vector<const Layer*>>>;
};

/// What steps the slices of a segment of `trainable()`.
using StepSegment = std::function<void(std::size_t segment)>;

/// Optional: `void step_in_backward(StepSegment step)`, for a strategy that can say when the gradients of a segment are
/// complete; StepInBackward needs it. It is called before attach(). From then on the strategy calls `step(segment)`
/// once a step for every segment of `trainable()`, during the last backward pass, in an order that is the same on all
/// ranks, and holds no gradients after it.
template <class S>
concept OffersStepInBackward = ParallelStrategy<S> && requires(S s, StepSegment step) { s.step_in_backward(step); };

/// Optional: `static void check_step_in_backward(const Config&)`, which throws an Error with code `config` for settings
/// that the strategy refuses when it steps in backward. StepInBackward's `check` calls it.
template <class S>
concept ChecksStepInBackward =
    OffersStepInBackward<S> && requires(const typename S::Config& config) { S::check_step_in_backward(config); };

/// True if the strategy calls the optimizer in backward, so that a trainer does not: `static constexpr bool
/// kStepsInBackward = true`, as StepInBackward has it.
template <class S>
inline constexpr bool steps_in_backward = requires { requires S::kStepsInBackward; };

/// True if the strategy runs layers again in backward: `static constexpr bool kRecomputes = true`, as Recompute has it.
template <class S>
inline constexpr bool recomputes_layers = requires { requires S::kRecomputes; };

/// Explains by static_assert what a type lacks to be a strategy, and which optional function has another signature than
/// the library calls.
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
                "strategy: add `auto around(Layers, Next, Args...)`, which returns next(args...), and `auto runner()`, "
                "the LayerRunner that the model's forward is given");
  static_assert(CallsModel<S>,
                "strategy: add `template <class Model, class Batch, class Compute> at::Tensor forward(Model& model, "
                "const Batch& batch, Compute&& compute)`, which returns compute(model, run, batch) with its runner");
  static_assert(BracketsBackward<S>, "strategy: add `void begin_backward(Sync)` and `void finish_backward()`");
  static_assert(FinishesStep<S>,
                "strategy: add `void finish_step()`, called after the optimizer has stepped the slices, and `void "
                "wait_pending()`, which returns when no collective that the strategy has started is still running");
  static_assert(SumsOverShards<S>, "strategy: add `at::Tensor sum_over_shards(at::Tensor) const`");
  static_assert(GathersParameters<S>,
                "strategy: add `auto gathered()`, a scope in which all parameters are whole, and `void make_whole()`, "
                "after which they stay whole, and equal on all ranks, until the next step");
  // The casts are needed because g++ accepts `&S::f` even if the requires clause of f is not satisfied.
  if constexpr (ParallelStrategy<S>) {
    static_assert(
        ChecksConfig<S> || !requires { &S::check; } ||
            requires { static_cast<void (*)(const typename S::Config&)>(&S::check); },
        "strategy: check is `static void check(const Config&)`");
    static_assert(
        VerifiesCalls<S> || !requires { &S::take_call_hash; } ||
            requires { static_cast<std::uint32_t (S::*)()>(&S::take_call_hash); },
        "strategy: take_call_hash is `std::uint32_t take_call_hash()`");
    static_assert(
        ResumesAtStep<S> || !requires { &S::resume_at; } ||
            requires { static_cast<void (S::*)(std::int64_t)>(&S::resume_at); },
        "strategy: resume_at is `void resume_at(std::int64_t step)`");
    static_assert(
        SharesBuffers<S> || !requires { &S::share_buffers; } ||
            requires { static_cast<void (S::*)()>(&S::share_buffers); },
        "strategy: share_buffers is `void share_buffers()`");
    static_assert(
        HoldsReplicas<S> || !requires { &S::replicas; } || requires { static_cast<Replicas (S::*)()>(&S::replicas); },
        "strategy: replicas is `Replicas replicas()`");
    static_assert(
        CanBeCaptured<S> || !requires { &S::can_be_captured; } ||
            requires { static_cast<bool (*)(const typename S::Config&)>(&S::can_be_captured); },
        "strategy: can_be_captured is `static bool can_be_captured(const Config&)`");
    static_assert(
        PlansUnits<S> || !requires { &S::layers_of_unit; } ||
            requires { static_cast<std::int64_t (*)(const typename S::Config&, std::int64_t)>(&S::layers_of_unit); },
        "strategy: layers_of_unit is `static std::int64_t layers_of_unit(const Config&, std::int64_t bytes)`");
    static_assert(
        PlansSegments<S> || !requires { &S::segment_bytes; } ||
            requires { static_cast<std::int64_t (*)(const typename S::Config&)>(&S::segment_bytes); },
        "strategy: segment_bytes is `static std::int64_t segment_bytes(const Config&)`");
    static_assert(
        CopiesLayers<S> || !requires { &S::layers_of_replicas; } ||
            requires { static_cast<std::vector<std::vector<const Layer*>> (S::*)() const>(&S::layers_of_replicas); },
        "strategy: layers_of_replicas is `std::vector<std::vector<const Layer*>> layers_of_replicas() const`");
    static_assert(
        OffersStepInBackward<S> || !requires { &S::step_in_backward; } ||
            requires { static_cast<void (S::*)(StepSegment)>(&S::step_in_backward); },
        "strategy: step_in_backward is `void step_in_backward(StepSegment)`");
    static_assert(
        ChecksStepInBackward<S> || !requires { &S::check_step_in_backward; } ||
            requires { static_cast<void (*)(const typename S::Config&)>(&S::check_step_in_backward); },
        "strategy: check_step_in_backward is `static void check_step_in_backward(const Config&)`");
  }
  return true;
}

}  // namespace ddpxx
