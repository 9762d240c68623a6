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

/// By how many ranks a step's gradients are divided: by all, so that each sample counts the same as before, or by those
/// that still have a batch, so that each such rank does.
enum class DivideBy { all_ranks, active_ranks };

struct JoinOptions {
  DivideBy divide_by = DivideBy::all_ranks;
  /// All ranks throw as soon as one of them has run out while others have not.
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

/// In the place of the hook of a strategy that has none.
template <class Strategy>
struct NoHookOf;

}  // namespace detail

/// Lets ranks with fewer batches stand in for themselves, with zeros, until all are done.
///
///     Join join{ddp};
///     for (const auto& batch : batches) {
///       join.step();
///       ddp.begin_backward(Sync::now); ...; ddp.finish_backward(); optimizer.step(lr); ddp.finish_step();
///     }
///     while (join.shadow()) {}
///
/// At the end all ranks hold the parameters and buffers of the highest of those that finished last. A rank that ran out
/// does not step its optimizer, whose state then is that of its own last step; with `while (join.shadow()) {
/// optimizer.step(lr); ddp.finish_step(); }` it does, and parameters and state stay equal on all ranks to the last bit.
/// A StepInBackward<DDP> does so by itself: shadow() steps, and leaves no gradients. Costs one small all-reduce a step
/// that the host waits for, and in the steps without rank 0 one more round of the buffers: give all ranks as many
/// batches where that can be done.
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

  /// Before a step's first backward pass, on a rank that has a batch for it.
  /// Ranks   Collective with the step() or shadow() of the others; what follows is, until finish_backward().
  /// Errors  `data` naming the ranks that have run out, if that is to throw; on all ranks, in the same step. `config`
  ///         once shadow() has been false.
  void step() { count(/*mine=*/1); }

  /// On a rank that has run out: takes part in the next step of the others, whose average then lies in the gradients.
  /// False once no rank has a batch: this rank then has the model of a rank that finished last.
  /// Ranks   As step(). Once false it communicates nothing, and stays false.
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
  /// Counts the ranks that have a batch, and prepares a step over them.
  int count(int mine) {
    const Group& group = ddp_->group();
    if (done_) throw Error{Errc::config, "Join: all ranks have said that they are out of batches: make a new one"};
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
    return Error{Errc::data, "ranks out of batches while others go on: " + ranks +
                                 "; give all ranks as many, or leave throw_on_early_termination off"}
        .with("rank", ddp_->group().rank());
  }

  DDPWith<Hook>* ddp_;
  JoinOptions options_;
  int last_ = -1;  ///< The highest rank that had a batch in the last step; none yet.
  bool done_ = false;
};

/// Says what is wrong with a strategy that Join does not know.
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
