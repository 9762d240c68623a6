// ddpxx/parallel/join.hpp — DDP where some ranks have fewer batches than others.
#pragma once

#include <algorithm>
#include <concepts>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/wraps_strategy.hpp>

namespace ddpxx {

/// What the sum of a step's gradients is divided by. all_ranks: the number of all ranks, so that each sample has the
/// same weight in every step. active_ranks: the number of ranks that still have a batch.
enum class DivideBy { all_ranks, active_ranks };

struct JoinOptions {
  DivideBy divide_by = DivideBy::all_ranks;
  /// Throw on all ranks as soon as one rank has run out of batches and another has not.
  bool throw_on_early_termination = false;
};

namespace detail {

template <class Hook>
std::type_identity<Hook> hook_of(const DDPWith<Hook>&);

/// DDP, alone or with other strategies wrapped around it.
template <class Strategy>
concept HasDDPInside = requires(Strategy& strategy) { hook_of(innermost(strategy)); };
template <HasDDPInside Strategy>
using HookInside = typename decltype(hook_of(innermost(std::declval<Strategy&>())))::type;

/// Stands for the hook of a strategy without one.
template <class Strategy>
struct NoHookOf;

}  // namespace detail

/// Lets ranks with fewer batches take part in the steps of the others, with gradients of zeros, until all are done.
///
///     Join join{ddp};
///     for (const auto& batch : batches) {
///       join.step();
///       ddp.begin_backward(Sync::now); ...; ddp.finish_backward(); optimizer.step(lr); ddp.finish_step();
///     }
///     while (join.shadow()) {}
///
/// At the end all ranks hold the parameters and buffers of one rank: the highest of those that had a batch last. With
/// the loop above, a rank without batches does not step its optimizer, whose state stays that of its own last step.
/// With `while (join.shadow()) { optimizer.step(lr); ddp.finish_step(); }` it does, and parameters and state stay equal
/// on all ranks bit for bit. Under StepInBackward<DDP> shadow() itself steps, and leaves no gradients. Join costs one
/// small all-reduce a step, which the host waits for, and one more broadcast of the buffers in each step without rank
/// 0: give all ranks the same number of batches where you can.
/// Source  torch.distributed.algorithms.join.Join over DistributedDataParallel.
template <class Hook>
class Join {
  static_assert(!ScalesGradients<Hook>,
                "Join: a rank without batches cannot stand in for gradients that this hook leaves on their rank");

 public:
  explicit Join(DDPWith<Hook>& ddp, const JoinOptions& options = {}) : ddp_{&ddp}, options_{options} {}
  template <detail::HasDDPInside Strategy>
  explicit Join(Strategy& strategy, const JoinOptions& options = {})
      : Join{static_cast<DDPWith<Hook>&>(innermost(strategy)), options} {}
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  /// Called before a step's first backward pass, on a rank that has a batch for it.
  /// Ranks   Collective: the other ranks call step() or shadow(). So are all calls from here to finish_backward().
  /// Errors  `data`, naming the ranks that have run out, with throw_on_early_termination; all ranks throw in the same
  ///         step. `config` after shadow() has returned false.
  void step() { count(/*mine=*/1); }

  /// Called on a rank that has run out of batches: takes part in the next step of the others and returns true; the
  /// gradients are then the averages of that step. Returns false when no rank has a batch; this rank then has the model
  /// of a rank that had a batch last.
  /// Ranks   As step(). After it has returned false it communicates nothing, and returns false again.
  /// Errors  `data` as step().
  bool shadow() {
    if (done_) return false;
    if (count(/*mine=*/0) > 0) {
      ddp_->sit_out();
      return true;
    }
    done_ = true;
    ddp_->average_over(ddp_->group().size());
    if (last_ >= 0) ddp_->give_model(last_);
    return false;
  }

 private:
  /// Counts the ranks that have a batch, and prepares a step over them. `mine` is 1 if this rank has one, else 0.
  int count(int mine) {
    const Group& group = ddp_->group();
    if (done_) throw Error{Errc::config, "Join: all ranks are out of batches, and this Join has ended: make a new one"};
    const at::Tensor flags = at::zeros({group.size()}, at::TensorOptions{at::kInt}.device(group.device()));
    flags[group.rank()].fill_(mine);
    all_reduce(flags, group);
    const at::Tensor on_host = flags.to(at::kCPU);
    const std::vector<int> active(on_host.const_data_ptr<int>(), on_host.const_data_ptr<int>() + group.size());
    const auto num_active = static_cast<int>(std::ranges::count(active, 1));
    if (num_active == 0) return 0;
    if (num_active < group.size() && options_.throw_on_early_termination) throw early_termination(active);

    for (int rank = 0; rank < group.size(); ++rank)
      if (active[static_cast<std::size_t>(rank)] == 1) last_ = rank;
    if (options_.divide_by == DivideBy::active_ranks) ddp_->average_over(num_active);
    // Each step begins from the buffers of rank 0, which are old if it has run out.
    if (active.front() == 0) ddp_->give_buffers(last_);
    return num_active;
  }

  Error early_termination(const std::vector<int>& active) const {
    std::string ranks;
    for (std::size_t rank = 0; rank < active.size(); ++rank)
      if (active[rank] == 0) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    return Error{Errc::data, "ranks out of batches while others have more: " + ranks +
                                 "; give all ranks the same number of batches, or set throw_on_early_termination=false"}
        .with("rank", ddp_->group().rank());
  }

  DDPWith<Hook>* ddp_;
  JoinOptions options_;
  int last_ = -1;  ///< The highest rank that had a batch in the last step; -1 before the first.
  bool done_ = false;
};

/// Explains by static_assert why Join does not take a strategy.
template <class Strategy>
class Join<detail::NoHookOf<Strategy>> {
  static_assert(!std::same_as<Strategy, Strategy>,
                "Join: this strategy is not DDP: choose DDP, alone or in Recompute or StepInBackward, or give all "
                "ranks as many batches");

 public:
  explicit Join(Strategy&, const JoinOptions& = {}) {}
};
template <detail::HasDDPInside Strategy>
Join(Strategy&) -> Join<detail::HookInside<Strategy>>;
template <detail::HasDDPInside Strategy>
Join(Strategy&, const JoinOptions&) -> Join<detail::HookInside<Strategy>>;
template <class Strategy>
Join(Strategy&) -> Join<detail::NoHookOf<Strategy>>;
template <class Strategy>
Join(Strategy&, const JoinOptions&) -> Join<detail::NoHookOf<Strategy>>;

}  // namespace ddpxx
