// ddpxx/parallel/step_in_backward.hpp — steps the parameters while backward runs, and frees their gradients.
#pragma once

#include <cstddef>
#include <utility>

#include <ddpxx/core/error.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/parallel/wraps_strategy.hpp>

namespace ddpxx {

/// `Strategy`, whose parameters are stepped during backward: as soon as the gradients of a segment (a bucket of DDP, a
/// unit of FSDP) have been averaged, the optimizer steps the segment, and its gradient memory is used for the next
/// segment of about its size. Where several micro-batches are added up, only the last backward pass steps, and all
/// gradients are kept until then. Results equal those of `Strategy` bit for bit on up to two ranks; DDP's buckets are
/// cut a little differently, so that on more ranks, or with a hook that works on whole buckets, rounding may differ.
///
///     Trainer<GPT, CharDataset, AdamW, Float32, StepInBackward<DDP>> trainer{...};
///
/// Nothing works that needs all gradients before the first step: clipping by the global norm is refused when a trainer
/// is made, so set training.grad_norm_clip=0, whose default is 1, and a scaled loss does not compile. The norm itself
/// is still reported. `.grad` is undefined. After an exception in backward some segments have been stepped and others
/// not: resume from a snapshot.
///
/// Errors  `config` for attach() before step_in_backward(); those of the strategy.
/// Source  torch.distributed.optim._apply_optimizer_in_backward; Lv et al. 2023, arXiv:2306.09782.
template <class Strategy>
class StepInBackward : public WrapsStrategy<Strategy> {
  using Wraps = WrapsStrategy<Strategy>;
  static_assert(!steps_in_backward<Strategy>, "StepInBackward<StepInBackward<S>>: once is enough");
  static_assert(OffersStepInBackward<Strategy>,
                "StepInBackward: this strategy does not say when a part of its gradients is complete: choose "
                "SingleDevice, DDP, ZeRO, FSDP or HSDP, or add `void step_in_backward(std::function<void(std::size_t "
                "segment)>)`");

 public:
  using typename Wraps::Config;
  using Wraps::Wraps;
  static constexpr bool kStepsInBackward = true;

  /// Throws what the strategy refuses, alone and when it steps in backward.
  static void check(const Config& config) {
    if constexpr (ChecksConfig<Strategy>) Strategy::check(config);
    if constexpr (ChecksStepInBackward<Strategy>) Strategy::check_step_in_backward(config);
  }

  /// Before attach(): `step` steps the slices of a segment of `trainable()`.
  void step_in_backward(StepSegment step) {
    has_step_ = true;
    this->inner().step_in_backward(std::move(step));
  }
  void attach(FlatModel& model) {
    if (!has_step_)
      throw Error{Errc::config,
                  "StepInBackward: nothing steps the segments: call step_in_backward() before attach(), or take the "
                  "strategy alone"};
    Wraps::attach(model);
  }

 private:
  bool has_step_ = false;
};

}  // namespace ddpxx
