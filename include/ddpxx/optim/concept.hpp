// ddpxx/optim/concept.hpp — the door of the optimizers: each steps slices of flat memory.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/optim/schedule.hpp>

namespace ddpxx {

/// The optimizer groups: weights that decay, and the rest.
enum class DecayGroup : int { decay = 0, no_decay = 1 };

/// The index of a slice's group, for an optimizer that has `DecayGroup`'s two.
/// Errors  `config` for any other group.
inline std::size_t index_of_group(const Slice& slice) {
  if (slice.group != static_cast<int>(DecayGroup::decay) && slice.group != static_cast<int>(DecayGroup::no_decay))
    throw Error{Errc::config, "a parameter was put into optimizer group " + std::to_string(slice.group) +
                                  ", but this optimizer has the groups 0 (weights that decay) and 1 (the rest) only"};
  return static_cast<std::size_t>(slice.group);
}

/// One kind of optimizer state, such as the gradients' mean. There is a tensor for each slice that the optimizer was
/// built from, in the order of the slices: 1-D, contiguous, with one element for each element of the slice. Tensors of
/// different slices may lie in different memories. Snapshots save and load state by these places, so that they refuse
/// any other layout.
struct Moment {
  std::string name;
  std::vector<at::Tensor> slices;
};

template <class O>
concept BuiltFromSlices =
    requires { typename O::Config; } && std::constructible_from<O, const typename O::Config&, std::span<const Slice>>;
template <class O>
concept ConfigIsScheduled = requires { requires Scheduled<typename O::Config>; };
template <class O>
concept Steps = requires(O optimizer, double learning_rate, const std::optional<at::Tensor>& found_inf) {
  optimizer.step(learning_rate);
  optimizer.step(learning_rate, found_inf);
};
template <class O>
concept KeepsState = requires(O optimizer, const O& view, std::int64_t step) {
  { view.steps_done() } -> std::same_as<std::int64_t>;
  { view.moments() } -> std::convertible_to<std::span<const Moment>>;
  optimizer.resume_at(step);
};

/// Optional: `at::Tensor step_count() const`, where the number of steps is kept as a tensor, which snapshots then save
/// and load as well.
template <class O>
concept KeepsStepCount = requires(const O& view) {
  { view.step_count() } -> std::convertible_to<at::Tensor>;
};
/// Optional: `static constexpr const char* kPythonName`, the class of torch.optim that has the same state. Snapshots
/// then convert to files of PyTorch with the optimizer's state.
template <class O>
concept HasPythonName = requires { std::string{O::kPythonName}; };

template <class O>
concept SliceOptimizer = BuiltFromSlices<O> && ConfigIsScheduled<O> && Steps<O> && KeepsState<O>;

template <class O>
consteval bool explain_optimizer() {
  static_assert(BuiltFromSlices<O>,
                "optimizer: add `struct Config` and a constructor from (const Config&, std::span<const Slice>)");
  static_assert(ConfigIsScheduled<O>,
                "optimizer: give its Config learning_rate, final_learning_rate, schedule, "
                "warmup_steps, decay_steps and decay_ratio");
  static_assert(
      Steps<O>,
      "optimizer: add `void step(double learning_rate, const std::optional<at::Tensor>& found_inf = {})`, which "
      "changes nothing if found_inf is 1");
  static_assert(KeepsState<O>,
                "optimizer: add `std::int64_t steps_done() const`, `std::span<const Moment> moments() "
                "const`, each with one contiguous 1-D tensor for each slice, and `void resume_at(std::int64_t step)`");
  return true;
}

/// Zeros laid out like the slices: one allocation, a view per slice.
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
