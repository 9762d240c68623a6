// ddpxx/parallel/hooks/post_local_sgd.hpp — averages gradients until some step, and parameters every few steps after
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/parallel/comm_hook.hpp>

namespace ddpxx {

struct PostLocalSGDConfig {
  std::int64_t start_step = 1000;
  std::int64_t period = 4;
  std::int64_t local_ranks = 1;

  static constexpr auto describe() {
    return fields(
        field<&PostLocalSGDConfig::start_step>("Number of first steps in which all ranks average their gradients",
                                               at_least(0), Unit::steps),
        field<&PostLocalSGDConfig::period>("After start_step: steps between two averages of the parameters",
                                           at_least(1), Unit::steps),
        field<&PostLocalSGDConfig::local_ranks>(
            "After start_step: number of neighbouring ranks that still average their gradients, such as those of one "
            "node; 1 means that no ranks do",
            at_least(1), Unit::ranks));
  }
};

/// All ranks average their gradients for `start_step` steps. After that only groups of `local_ranks` neighbours do, and
/// the parameters of all ranks are averaged every `period` steps, beginning with the first: 1/period of the traffic
/// between nodes. The optimizer's state is never averaged.
/// The parameters of the ranks are equal only after a step with an average: save and evaluate then. Gradient norms, and
/// so the effect of clipping, differ from rank to rank. A moving average of the parameters (ema_decay) is taken after
/// the parameters of a step have been averaged; each rank has its own, and snapshots hold that of rank 0.
/// Ranks   Building it is collective. Every rank calls DDP's finish_step() after each step.
/// Errors  `config` where `local_ranks` does not divide the number of ranks.
/// Source  Lin et al. 2018, arXiv:1808.07217; torch's post_localSGD_hook with PeriodicModelAverager.
class PostLocalSGD {
 public:
  using Config = PostLocalSGDConfig;
  static constexpr bool kRanksDrift = true;  ///< Between two averages the parameters of the ranks differ.

  PostLocalSGD(const Config& config, Group& group) : config_{config} {
    if (config.local_ranks < 1 || group.size() % config.local_ranks != 0)
      throw Error{Errc::config, "local_ranks=" + std::to_string(config.local_ranks) + " does not divide the " +
                                    std::to_string(group.size()) +
                                    " ranks: choose a divisor, such as the ranks of a node"};
    const auto neighbours = static_cast<int>(config.local_ranks);
    if (neighbours > 1)
      neighbours_.emplace(
          group.split({.color = group.rank() / neighbours, .rank = group.rank() % neighbours, .size = neighbours}));
    all_ranks_ = group.size();
  }

  double scale() const { return 1.0 / static_cast<double>(is_local(steps_) ? config_.local_ranks : all_ranks_); }

  Pending start(std::size_t bucket, at::Tensor memory, const Group& group) {
    if (bucket == 0) begin_step();
    if (!is_local(steps_ - 1)) return start_all_reduce(memory, group);
    if (neighbours_) return start_all_reduce(memory, *neighbours_);
    return {};
  }

  /// Averages the parameters if this step is one with an average.
  void finish_step(const Arena& arena, const Group& group) {
    if (!average_is_due_) return;
    average_is_due_ = false;
    for (const auto& segment : arena.segments()) all_reduce(segment.master.div_(group.size()), group);
  }

  /// Continues as after `step` steps.
  void resume_at(std::int64_t step) noexcept { steps_ = step; }
  void abandon() noexcept {
    --steps_;
    average_is_due_ = false;
  }

 private:
  bool is_local(std::int64_t step) const noexcept { return step >= config_.start_step; }
  void begin_step() {
    average_is_due_ = is_local(steps_) && (steps_ - config_.start_step) % config_.period == 0;
    ++steps_;
  }

  Config config_;
  std::optional<Group> neighbours_;
  std::int64_t all_ranks_ = 1;
  std::int64_t steps_ = 0;  ///< Steps that have begun.
  bool average_is_due_ = false;
};

static_assert(CommHook<PostLocalSGD> && explain_hook<PostLocalSGD>());

}  // namespace ddpxx
