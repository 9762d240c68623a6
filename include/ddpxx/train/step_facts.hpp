// ddpxx/train/step_facts.hpp — the few numbers that all ranks must agree on in a step, in one small all-reduce.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/intercepted_operations.hpp>
#include <ddpxx/observe/rank_time.hpp>
#include <ddpxx/train/metric_sums.hpp>

namespace ddpxx {

/// Small numbers on their way from a device to the host. The copy is asynchronous: to read it two steps later takes no
/// waiting.
class HostCopy {
 public:
  explicit HostCopy(const at::Tensor& source) : values_{source} {
    if (source.is_cpu()) return;
    values_ = at::empty(source.sizes(), source.options().device(at::kCPU).pinned_memory(true));
    values_.copy_(source, /*non_blocking=*/true);
    copied_.emplace(source.device().type());
    copied_->record(c10::impl::VirtualGuardImpl{source.device().type()}.getStream(source.device()));
  }
  double operator[](std::int64_t i) {
    if (copied_) std::exchange(copied_, std::nullopt)->synchronize();
    // Reading the memory gives what the operations below give, in less time.
    if (values_.is_contiguous() && !InterceptedOperations::active()) {
      if (values_.scalar_type() == at::kDouble) return values_.const_data_ptr<double>()[i];
      if (values_.scalar_type() == at::kFloat) return values_.const_data_ptr<float>()[i];
    }
    return values_.view(-1)[i].item<double>();
  }

 private:
  at::Tensor values_;
  std::optional<c10::Event> copied_;
};

/// The votes of one rank in a step, or those of all ranks: true where at least one rank votes so, except for
/// `snapshot_written`, which is true where all do.
struct StepVotes {
  bool to_stop = false;           ///< To end the training: the time is over, or an observer wants it.
  bool asked_to_stop = false;     ///< A signal, or the program, asks to stop.
  bool save_due = false;          ///< It is time to save.
  bool snapshot_written = false;  ///< The rank's part of the snapshot under way is written.
};

/// What one rank tells the others in a step.
struct RankFacts {
  std::int64_t targets = 0;      ///< In this step's batches.
  StepVotes votes = {};          ///< Of this rank.
  std::uint16_t last_calls = 0;  ///< A number for the layers called, and the gradients sent, in the last step.
};

/// What one rank knows of the last step once it is done. Tensors are 0-dim and on the device, and undefined where there
/// is nothing to send.
struct LastStep {
  at::Tensor loss = {};               ///< The sum over this rank's targets.
  at::Tensor norm = {};               ///< Norm of this rank's gradients, where the ranks step different ones.
  at::Tensor skipped = {};            ///< 1 if the step was left out, else 0.
  MetricSums metrics = {};            ///< The model's own; all ranks have equal names.
  std::optional<RankTime> time = {};  ///< Of this rank; none on any rank where it is not measured.
};

/// The sums over all ranks of: what each tells, and what each knows of the last step. Started before the forward pass,
/// needed first by the backward pass.
class StepFacts {
 public:
  /// Ranks   Collective.
  StepFacts(const RankFacts& facts, const LastStep& last, const Group& group)
      : sums_{at::zeros({first_time(last.metrics.num_numbers()) + (last.time ? 2 * group.size() : 0)},
                        at::TensorOptions{}.dtype(at::kDouble).pinned_memory(group.device().is_cuda()))} {
    auto* mine = sums_.mutable_data_ptr<double>();
    mine[kTargets] = static_cast<double>(facts.targets);
    mine[kVotes] = facts.votes.to_stop ? 1.0 : 0.0;
    mine[kAsked] = facts.votes.asked_to_stop ? 1.0 : 0.0;
    mine[kSaveDue] = facts.votes.save_due ? 1.0 : 0.0;
    mine[kWritten] = facts.votes.snapshot_written ? 1.0 : 0.0;
    mine[kCalls] = facts.last_calls;
    mine[kSquaredCalls] = static_cast<double>(facts.last_calls) * facts.last_calls;
    if (last.time) {  // the sum with the zeros of the other ranks holds the times of all
      auto* time = mine + first_time(last.metrics.num_numbers()) + 2 * group.rank();
      time[0] = last.time->own_ms;
      time[1] = last.time->data_ms;
    }
    sums_ = sums_.to(group.device(), /*non_blocking=*/true);
    if (last.loss.defined()) sums_.select(0, kLastLoss).copy_(last.loss);
    if (last.norm.defined()) sums_.select(0, kLastNorm).copy_(last.norm);
    if (last.skipped.defined()) sums_.select(0, kLastSkipped).copy_(last.skipped);
    if (!last.metrics.names().empty()) last.metrics.write(sums_.narrow(0, kNumbers, last.metrics.num_numbers()));
    pending_ = start_all_reduce(sums_, group);
  }

  /// The targets of all ranks in this step, on the device. Shapes  0-dim.
  at::Tensor targets() { return sums().select(0, kTargets); }
  /// What backward of a loss sum starts from, so that the averaged gradients are those of the mean over all targets.
  static at::Tensor seed(const at::Tensor& loss, const at::Tensor& targets, int world_size) {
    return at::div(at::scalar_tensor(world_size, loss.options()), targets.to(loss.options()));
  }
  /// Waits for the sum of the targets, on the host too.
  /// Ranks   Local; every rank comes to the same verdict.
  /// Errors  `data` when the batches of all ranks together count no targets.
  void check_targets() {
    pending_.wait();
    if (sums_.select(0, kTargets).item<double>() == 0) throw no_targets(Errc::data);
  }
  static Error no_targets(Errc code) {
    return {code,
            "the batches of this step count no targets, so that there is no mean loss: set num_tokens of each batch to "
            "the number of its targets that enter the loss, for example Batch{inputs, targets, targets.numel()}"};
  }

  const at::Tensor& sums() {
    pending_.wait();
    return sums_;
  }

  static constexpr std::int64_t kTargets = 0, kVotes = 1, kLastLoss = 2, kCalls = 3, kSquaredCalls = 4, kWritten = 5,
                                kSaveDue = 6, kLastSkipped = 7, kAsked = 8, kLastNorm = 9,
                                kNumbers = 10;  ///< Metrics of the last step follow, then the times of all ranks.

  /// The index of rank 0's own_ms, behind so many numbers of metrics; its data_ms and those of the next ranks follow.
  static constexpr std::int64_t first_time(std::int64_t numbers_of_metrics) { return kNumbers + numbers_of_metrics; }

  /// Whether all ranks gave the same number: only then is W times the sum of squares the square of the sum. Every rank
  /// comes to the same verdict. Exact up to 1024 ranks; more are not compared.
  static bool same_calls(double sum, double squares, int world_size) {
    return world_size > 1024 || world_size * squares == sum * sum;
  }

 private:
  at::Tensor sums_;
  Pending pending_;
};

}  // namespace ddpxx
