// ddpxx/optim/concept.hpp — what an optimizer must provide: it steps slices of flat memory.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/optim/parameter_group.hpp>

namespace ddpxx {

/// One kind of optimizer state, such as the running mean of the gradients. There is a tensor for each slice that the
/// optimizer was built from, in the order of the slices: 1-D, contiguous, with one element for each element of the
/// slice. All tensors are of one type; those of different slices may lie in different memories. Snapshots save and load
/// the state by this layout, and refuse others. An optimizer that keeps the state for some parameters only gives the
/// indices of those in the arena, ascending, as `parameters`; then there is a tensor for each of their `SliceEntry`s.
struct Moment {
  std::string name;
  std::vector<at::Tensor> slices;
  std::optional<std::vector<std::size_t>> parameters = {};
};

/// Sums a tensor over the ranks that hold different parts of the parameters. All ranks call it in one order, with
/// tensors of one shape.
using SumOverShards = std::function<at::Tensor(at::Tensor)>;

/// Changes whole matrices: `parts[i]` has the elements of matrix i that this rank holds, and is overwritten by those of
/// `change(matrix)`, which one rank has computed for all of them.
/// Ranks   Collective.
using MatrixTransform =
    std::function<void(std::span<const at::Tensor> parts, const std::function<at::Tensor(const at::Tensor&)>& change)>;

/// Makes the transform for some matrices of an arena, given by the indices of their entries.
using MakeMatrixTransform = std::function<MatrixTransform(const Arena& arena, std::vector<std::size_t> matrices)>;

template <class O>
concept BuiltFromSlices =
    requires { typename O::Config; } && std::constructible_from<O, const typename O::Config&, std::span<const Slice>>;
/// In place of the constructor from slices, for an optimizer that needs numbers of whole parameters, such as norms: a
/// constructor from config, arena and `SumOverShards`. The optimizer steps `arena.slices()`; `Slice::entries()` says
/// which elements of which parameters they hold.
template <class O>
concept ParameterOptimizer = requires { typename O::Config; } &&
                             std::constructible_from<O, const typename O::Config&, const Arena&, SumOverShards>;
/// In place of the constructor from slices, for an optimizer that needs whole matrices: a constructor from config,
/// arena and `MakeMatrixTransform`. Its transform sends each matrix to one owner rank, so that no two ranks do the same
/// work.
template <class O>
concept MatrixOptimizer = requires {
  typename O::Config;
} && std::constructible_from<O, const typename O::Config&, const Arena&, const MakeMatrixTransform&>;
template <class O>
concept SchedulesItsRate = requires(const typename O::Config& config, std::int64_t step) {
  { config.learning_rate_at(step) } -> std::convertible_to<double>;
};
template <class O>
concept Steps = requires(O optimizer, double learning_rate) { optimizer.step(learning_rate); };
template <class O>
concept ShowsItsState = requires(const O& optimizer) {
  { optimizer.moments() } -> std::convertible_to<std::span<const Moment>>;
};

/// What a trainer asks of an optimizer: it is built from its config and slices, steps all slices at once, schedules its
/// own learning rate, and shows its state for snapshots.
template <class O>
concept SliceOptimizer = BuiltFromSlices<O> && SchedulesItsRate<O> && Steps<O> && ShowsItsState<O>;

/// Optional: `void step(double learning_rate, const std::optional<at::Tensor>& found_inf)`, which changes neither
/// values nor state where `found_inf`, 0-dim float32 on the device of the slices, is 1. A precision that scales the
/// loss needs it: a step whose gradients are not finite is skipped, and only the device knows which step that is.
template <class O>
concept SkipsSteps = requires(O optimizer, double learning_rate, const std::optional<at::Tensor>& found_inf) {
  optimizer.step(learning_rate, found_inf);
};
/// Optional: `static void check_can_skip_steps(const Config&)`, for an optimizer that cannot leave out steps with some
/// of its settings: throws Error `config` for them.
template <class O>
concept ChecksSkippedSteps = requires(const typename O::Config& config) { O::check_can_skip_steps(config); };
/// Optional: `void step(double learning_rate, const std::optional<at::Tensor>& found_inf, const at::Tensor& divisor)`,
/// which divides the gradients by `divisor`, 0-dim float32 on the device of the slices, and leaves the results in them.
/// Clipping by the norm then needs no pass of its own over the gradients (setting fused_clip).
template <class O>
concept DividesGradients = requires(O optimizer, double learning_rate, const std::optional<at::Tensor>& found_inf,
                                    const at::Tensor& divisor) { optimizer.step(learning_rate, found_inf, divisor); };
/// Optional: a step in two parts, for a step that is captured once and replayed: `void load_learning_rate(double)`
/// brings the learning rate to the device, and `void step_with_loaded_rate(const std::optional<at::Tensor>& found_inf,
/// const std::optional<at::Tensor>& divisor)` does the step with it, and hands no number to its operations that differs
/// from step to step. The setting `cuda_graph` needs it.
template <class O>
concept StepsWithLoadedRate = requires(O optimizer, double learning_rate, const std::optional<at::Tensor>& tensor) {
  optimizer.load_learning_rate(learning_rate);
  optimizer.step_with_loaded_rate(tensor, tensor);
};
/// Optional: a last parameter `std::span<const ParameterGroup>` of the constructor, which may have the default
/// `kDecayGroups`: the settings of each group, by the number that is `Slice::group` and `ArenaEntry::group`. The
/// setting `parameter_groups` needs it; `GroupTable` computes a group's learning rate and weight decay. An optimizer
/// without it has the two groups of `DecayGroup`.
template <class O>
concept TakesParameterGroups =
    requires { typename O::Config; } &&
    (std::constructible_from<O, const typename O::Config&, std::span<const Slice>, std::span<const ParameterGroup>> ||
     std::constructible_from<O, const typename O::Config&, const Arena&, SumOverShards,
                             std::span<const ParameterGroup>> ||
     std::constructible_from<O, const typename O::Config&, const Arena&, const MakeMatrixTransform&,
                             std::span<const ParameterGroup>>);
/// Optional: `void resume_at(std::int64_t step)`, for an optimizer that counts its steps on the host. It is called
/// after the state of a snapshot has been read into moments(); `step` is the number of steps that have made that state.
template <class O>
concept CountsOptimizerSteps = requires(O optimizer, std::int64_t step) { optimizer.resume_at(step); };
/// Optional: `at::Tensor step_count() const`, for an optimizer that keeps the number of its steps in a tensor.
/// Snapshots save and load that tensor too.
template <class O>
concept KeepsStepCount = requires(const O& optimizer) {
  { optimizer.step_count() } -> std::convertible_to<at::Tensor>;
};
/// Optional: `static constexpr const char* kPythonName`, the class of torch.optim whose state has the same tensors.
/// Files for PyTorch that are converted from snapshots then include the optimizer's state.
template <class O>
concept HasPythonName = requires { std::string{O::kPythonName}; };
/// Optional: `static constexpr const char* kSnapshotName`, for an optimizer that torch.optim does not have. Snapshots
/// record it, and an optimizer of another name does not go on from them, even if its state has the same tensors.
template <class O>
concept HasSnapshotName = requires { std::string{O::kSnapshotName}; };

template <class O>
consteval bool explain_optimizer() {
  static_assert(BuiltFromSlices<O> || ParameterOptimizer<O> || MatrixOptimizer<O>,
                "optimizer: add `struct Config` and a constructor from (const Config&, std::span<const Slice>)");
  if constexpr (requires { typename O::Config; })
    static_assert(
        SchedulesItsRate<O>,
        "optimizer: add `double learning_rate_at(std::int64_t step) const` to its Config: the learning rate of "
        "optimizer step `step`, counted from 0");
  static_assert(Steps<O>, "optimizer: add `void step(double learning_rate)`, which steps all slices");
  static_assert(ShowsItsState<O>,
                "optimizer: add `std::span<const Moment> moments() const`, each moment with one contiguous 1-D tensor "
                "for each slice");
  return true;
}

/// A moment of zeros for `slices`: one allocation, with a view for each slice.
inline Moment make_moment(std::string name, std::span<const Slice> slices) {
  Moment moment{std::move(name), {}};
  std::int64_t total = 0;
  for (const auto& slice : slices) total += slice.end - slice.begin;
  if (slices.empty()) return moment;
  const auto memory = at::zeros({total}, slices.front().values.options());
  for (std::int64_t begin = 0; const auto& slice : slices) {
    moment.slices.push_back(memory.narrow(0, begin, slice.end - slice.begin));
    begin += slice.end - slice.begin;
  }
  return moment;
}

}  // namespace ddpxx
