// ddpxx/parallel/ddp.hpp — distributed data parallel: every rank holds the whole model, gradients are averaged.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/gradient_hooks.hpp>
#include <ddpxx/parallel/buffers.hpp>
#include <ddpxx/parallel/comm_hook.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/parallel/ddp_config.hpp>
#include <ddpxx/parallel/hooks/all_reduce.hpp>
#include <ddpxx/parallel/reducer.hpp>
#include <ddpxx/parallel/replicas.hpp>
#include <ddpxx/parallel/same_model.hpp>
#include <ddpxx/parallel/stepped_segments.hpp>
#include <ddpxx/parallel/whole_model.hpp>

namespace ddpxx {

/// The settings of DDP with a hook.
template <class Hook>
struct HookedDDPConfig {
  DDPConfig ddp = {};
  typename Hook::Config hook = {};
};

/// Every rank holds the whole model and a share of each batch; `Hook` averages the gradients while backward runs.
/// attach() compares the models of the ranks and broadcasts rank 0's parameters and buffers; the buffers are broadcast
/// again before the first forward pass of each step.
/// Errors  `peer` naming the first parameter that differs between ranks; those of `Reducer` and of the hook.
/// Source  Li et al. 2020, arXiv:2006.15704; gradients agree bit for bit with PyTorch's DDP at two ranks.
template <class Hook = AllReduce>
class DDPWith : public WholeModel {
  static_assert(explain_hook<Hook>());
  static constexpr bool kPlain = std::same_as<Hook, AllReduce>;

 public:
  using Config = std::conditional_t<kPlain, DDPConfig, HookedDDPConfig<Hook>>;
  static constexpr bool kRanksDrift = HookLetsRanksDrift<Hook>;

  DDPWith(const Config& config, Group& group)
      : config_{own_part(config)}, group_{&group}, hook_{hook_part(config), group} {}

  /// Errors  `config` for bucket_bytes_list: segments have two sizes only.
  static void check_step_in_backward(const Config& config) { check_two_sizes(own_part(config)); }
  /// See OffersStepInBackward. Each bucket is then a segment.
  /// Errors  those of check_step_in_backward().
  void step_in_backward(StepSegment step) {
    check_two_sizes(config_);
    step_ = std::move(step);
  }
  /// See PlansSegments.
  static std::int64_t segment_bytes(const Config& config) { return own_part(config).bucket_bytes; }
  void attach(FlatModel& model) {
    check_same_model(model, *group_);
    const auto send = [this](at::Tensor values) { broadcast(values, *group_); };
    ArenaOptions options{.prepare = send};
    if (step_) {
      options.cut = CutAt::bytes;
      options.first_segment_bytes = config_.first_bucket_bytes;
      options.segment_bytes = config_.bucket_bytes;
    }
    trainable_ = Arena{model.trainable(), options};
    if (step_) stepped_.emplace(trainable_, step_);
    frozen_ = Arena{model.frozen(), {.gradients = Gradients::none, .prepare = send}};
    buffers_ = SharedBuffers{model.buffers(), *group_,
                             config_.broadcast_buffers ? BroadcastBuffers::each_step : BroadcastBuffers::once};
    reducer_.emplace(trainable_, *group_, reducer_options());
    if constexpr (KnowsBuckets<Hook>) hook_.attach(trainable_, reducer_->buckets());
    hooks_ = GradientHooks{trainable_,
                           [this](std::size_t i, const at::Tensor& gradient) {
                             if (!in_backward_) return;
                             if (sync_ == Sync::now)
                               reducer_->ready(i, gradient);
                             else
                               reducer_->defer(i, gradient);
                           },
                           [this](std::size_t i) { return reducer_->place(i); }};
  }

  void begin_backward(Sync sync) {
    abandon_interrupted();
    in_backward_ = true;
    check_owned();
    sync_ = sync;
    if constexpr (ScalesGradients<Hook>) reducer_->set_scale(hook_.scale());
    reducer_->begin();
    buffers_.begin_backward(sync);
  }
  void finish_backward() {
    if (sync_ == Sync::now) reducer_->finish();
    in_backward_ = false;
  }
  void finish_step() {
    if constexpr (FinishesHookStep<Hook>) hook_.finish_step(trainable_, *group_);
    WholeModel::finish_step();
  }
  /// Where the hook lets the models of the ranks differ, broadcasts rank 0's model, which snapshots hold too.
  /// Ranks   Collective for such a hook, local for others.
  void make_whole() {
    if constexpr (kRanksDrift) give_model(0);
  }
  /// See SharesBuffers.
  void share_buffers() { buffers_.share(); }
  /// See HoldsReplicas.
  Replicas replicas()
    requires(!kRanksDrift)
  {
    Replicas replicas;
    add_slices(replicas, trainable_);
    add_parameters(replicas, frozen_);
    return replicas;
  }

  Hook& hook() noexcept { return hook_; }
  /// See ResumesAtStep; for a hook that counts steps.
  void resume_at(std::int64_t step)
    requires CountsSteps<Hook>
  {
    abandon_interrupted();  // before the hook gets its number of steps, from which it would take that step off later
    hook_.resume_at(step);
  }

  // --- for ranks with fewer batches than others: see Join ---

  const Group& group() const noexcept { return *group_; }
  /// From the next backward pass on, gradients are divided by `ranks`; the other ranks contribute zeros.
  void average_over(int ranks) { reducer_->set_scale(1.0 / ranks); }
  /// A step of a rank that has no batch: takes part in all collectives of the others' begin_backward() and
  /// finish_backward().
  void sit_out() {
    check_owned();
    buffers_.begin_backward(Sync::now);
    reducer_->sit_out();
  }
  /// Broadcasts the buffers of `root`, if a step begins with a broadcast of rank 0's.
  void give_buffers(int root) const { buffers_.share(root); }
  /// Broadcasts the parameters and buffers of `root`.
  void give_model(int root) const {
    for (const auto& segment : trainable_.segments()) broadcast(segment.master, *group_, root);
    trainable_.publish_masters();
    buffers_.send(root);
  }

 private:
  /// Drops a backward pass that an exception has ended.
  void abandon_interrupted() {
    if (!std::exchange(in_backward_, false)) return;
    [[maybe_unused]] const bool started = reducer_->abandon();
    if constexpr (AbandonsHookStep<Hook>)
      if (started) hook_.abandon();
    buffers_.abandon();
  }

  static void check_two_sizes(const DDPConfig& config) {
    if (!config.bucket_bytes_list.empty())
      throw Error{Errc::config,
                  "bucket_bytes_list: StepInBackward cuts buckets by first_bucket_bytes and bucket_bytes; set those"};
  }
  static const DDPConfig& own_part(const Config& config) {
    if constexpr (kPlain)
      return config;
    else
      return config.ddp;
  }
  static typename Hook::Config hook_part(const Config& config) {
    if constexpr (kPlain)
      return {};
    else
      return config.hook;
  }

  ReducerOptions reducer_options() {
    ReducerOptions options{
        .first_bucket_bytes = config_.first_bucket_bytes,
        .bucket_bytes = config_.bucket_bytes,
        .bucket_bytes_list = config_.bucket_bytes_list,
        .start = [this](std::size_t i, at::Tensor memory) { return hook_.start(i, std::move(memory), *group_); }};
    if (stepped_) options.stepped = &*stepped_;
    if (config_.find_unused_parameters) options.unused = UnusedParameters::find;
    if (config_.static_graph) options.unused = UnusedParameters::learn;
    if constexpr (FinishesBuckets<Hook>)
      options.finish = [this](std::size_t i, at::Tensor memory) { hook_.finish(i, std::move(memory), *group_); };
    return options;
  }

  DDPConfig config_;
  Group* group_;
  Hook hook_;
  SharedBuffers buffers_;
  StepSegment step_;
  std::optional<SteppedSegments> stepped_;
  std::optional<Reducer> reducer_;
  GradientHooks hooks_;
  Sync sync_ = Sync::now;
  bool in_backward_ = false;
};

using DDP = DDPWith<>;

static_assert(ParallelStrategy<DDP> && explain_strategy<DDP>());

}  // namespace ddpxx
