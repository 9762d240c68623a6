// ddpxx/parallel/zero.hpp — ZeRO-1 and ZeRO-2: every rank holds all parameters and steps a part of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <c10/core/GradMode.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/flat/buffer_pool.hpp>
#include <ddpxx/flat/gradient_hooks.hpp>
#include <ddpxx/flat/hollow.hpp>
#include <ddpxx/parallel/buffers.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/parallel/reducer.hpp>
#include <ddpxx/parallel/replicas.hpp>
#include <ddpxx/parallel/same_model.hpp>
#include <ddpxx/parallel/shard_buckets.hpp>
#include <ddpxx/parallel/stepped_segments.hpp>
#include <ddpxx/parallel/zero_config.hpp>

namespace ddpxx {

/// What is sharded over the ranks: the optimizer's state (ZeRO-1), or the gradients as well (ZeRO-2).
enum class ZeROStage { optimizer = 1, gradients = 2 };

/// Every rank holds the whole model and steps one piece of each bucket; the stepped pieces are gathered while the next
/// forward pass begins. Gradients are reduce-scattered while backward runs: with ZeRO-2 in each backward pass of a
/// step, since no rank holds the whole sum, with ZeRO-1 only in the last. With two ranks and without clipping, results
/// equal DDP's bit for bit, with ZeRO-2 where a step has one batch. The calls are those of ParallelStrategy in
/// concept.hpp.
/// Errors  `peer` from attach(), naming the first parameter that differs between ranks; those of `Reducer`.
/// Source  Rajbhandari et al. 2020, arXiv:1910.02054.
template <ZeROStage kStage>
class ZeRO {
 public:
  using Config = ZeROConfig;

  ZeRO(const Config& config, Group& group) : config_{config}, group_{&group} {}
  ZeRO(const ZeRO&) = delete;
  ZeRO& operator=(const ZeRO&) = delete;
  /// Starts no collective. Waits for the pending gathers of the last step. If an exception is ending the scope it does
  /// not wait: parameters that have not arrived lose their values, and their next use is an error.
  ~ZeRO() {
    const bool unwinding = std::uncaught_exceptions() > exceptions_;
    for (std::size_t i = 0; i < gathers_.size(); ++i) {
      if (!gathers_[i].under_way()) continue;
      if (unwinding) {
        lose(i);
        continue;
      }
      try {
        wait_for(i);
      } catch (...) {
        lose(i);
      }
    }
  }

  /// See OffersStepInBackward.
  void step_in_backward(StepSegment step) { step_ = std::move(step); }
  /// See PlansSegments.
  static std::int64_t segment_bytes(const Config& config) { return config.bucket_bytes; }
  void attach(FlatModel& model) {
    check_same_model(model, *group_);
    const auto send = [this](at::Tensor values) { broadcast(values, *group_); };
    trainable_ = Arena{model.trainable(),
                       {.gradients = kStage == ZeROStage::optimizer ? Gradients::whole : Gradients::piece,
                        .pieces = group_->size(),
                        .piece = group_->rank(),
                        .cut = CutAt::bytes,
                        .first_segment_bytes = config_.first_bucket_bytes,
                        .segment_bytes = config_.bucket_bytes,
                        .prepare = send}};
    frozen_ = Arena{model.frozen(), {.gradients = Gradients::none, .prepare = send}};
    buffers_ = SharedBuffers{model.buffers(), *group_,
                             config_.broadcast_buffers ? BroadcastBuffers::each_step : BroadcastBuffers::once};
    if (step_)
      stepped_.emplace(trainable_, [this](std::size_t segment) {
        wait_for(segment);  // its layer may not have been called, and so not have waited
        step_(segment);
      });
    find_segments_of_layers(model);
    gathers_.resize(trainable_.segments().size());
    const auto unused = config_.find_unused_parameters ? UnusedParameters::find : UnusedParameters::refuse;
    if constexpr (kStage == ZeROStage::optimizer)
      reducer_.emplace(trainable_, *group_,
                       ReducerOptions{.unused = unused,
                                      .bucket_is_segment = true,
                                      .start =
                                          [this](std::size_t i, at::Tensor memory) {
                                            return start_reduce_scatter(trainable_.segments()[i].gradient, memory,
                                                                        *group_);
                                          },
                                      .stepped = stepped()});
    else
      reducer_.emplace(trainable_, *group_, model.formats().reduction, unused, stepped());
    hooks_ = GradientHooks{trainable_, [this](std::size_t i, const at::Tensor& gradient) { receive(i, gradient); },
                           [this](std::size_t i) { return place(i); }};
  }

  std::span<const Slice> slices() const { return trainable_.slices(); }
  const Arena& trainable() const { return trainable_; }
  const Arena& frozen() const { return frozen_; }

  /// Waits for the stepped parameters of the layers before they run.
  template <class Next, class... Args>
  decltype(auto) around(Layers layers, Next&& next, Args&&... args) {
    for (const auto* layer : layers)
      if (const auto found = segments_of_.find(layer); found != segments_of_.end())
        for (const auto segment : found->second) wait_for(segment);
    return std::forward<Next>(next)(std::forward<Args>(args)...);
  }
  auto runner() { return LayerRunner{*this}; }
  template <class Model, class Batch, class Compute>
  at::Tensor forward(Model& model, const Batch& batch, Compute&& compute) {
    auto run = runner();
    if constexpr (RunsLayers<Model, decltype(run), Batch>)
      for (const auto segment : segments_of_[nullptr]) wait_for(segment);
    else
      wait_pending();
    return compute(model, run, batch);
  }

  void begin_backward(Sync sync) {
    trainable_.check_owned();
    frozen_.check_owned();
    sync_ = sync;
    const bool is_interrupted = std::exchange(in_backward_, true);  // an exception has ended the last pass
    if (is_interrupted) buffers_.abandon();
    buffers_.begin_backward(sync);
    if (is_interrupted) reducer_->abandon();
    if constexpr (kStage == ZeROStage::optimizer)
      reducer_->begin();
    else
      reducer_->begin(sync);
  }
  void finish_backward() {
    wait_pending();  // also for parameters whose layers were not called: the optimizer writes them next
    if (kStage == ZeROStage::gradients || sync_ == Sync::now) reducer_->finish();
    in_backward_ = false;
  }

  /// Starts to gather the pieces that the other ranks have stepped, in the order in which forward needs them. Until a
  /// gather is done its parameters are hidden: they hold a mix of values of this step and the last one.
  void finish_step() {
    const c10::NoGradGuard no_grad;
    trainable_.publish_masters();
    trainable_.forget_changes();
    for (auto i = trainable_.segments().size(); i-- > 0;) {
      const auto& segment = trainable_.segments()[i];
      gathers_[i] = start_all_gather(segment.values, trainable_.piece_of(segment.values), *group_);
      if (gathers_[i].under_way()) trainable_.hide(segment);
    }
  }

  at::Tensor sum_over_shards(at::Tensor value) const {
    all_reduce(value, *group_);
    return value;
  }
  auto gathered() {
    wait_pending();
    return std::monostate{};
  }
  void make_whole() { wait_pending(); }
  /// See SharesBuffers.
  void share_buffers() { buffers_.share(); }
  /// See HoldsReplicas. The ranks step different pieces; the parameters, which they gather, are copies.
  Replicas replicas() {
    wait_pending();
    Replicas replicas;
    add_parameters(replicas, trainable_);
    add_parameters(replicas, frozen_);
    return replicas;
  }
  /// Waits for the gathers that the last step has started.
  void wait_pending() {
    for (std::size_t i = 0; i < gathers_.size(); ++i) wait_for(i);
  }

 private:
  void wait_for(std::size_t segment) {
    if (!gathers_[segment].under_way()) return;
    gathers_[segment].wait();
    trainable_.show(trainable_.segments()[segment]);
  }

  /// Marks the parameters of a segment as lost: their gather will not be waited for.
  void lose(std::size_t segment) noexcept {
    try {
      make_hollow(trainable_, trainable_.segments()[segment]);
    } catch (...) {  // out of memory: the parameters have empty storage then
      BufferPool::release(trainable_.segments()[segment].values);
    }
  }

  SteppedSegments* stepped() { return stepped_ ? &*stepped_ : nullptr; }

  /// Parameters that belong to no layer are listed under the null pointer.
  void find_segments_of_layers(const FlatModel& model) {
    for (const auto& entry : trainable_.entries()) {
      const auto unit = static_cast<std::size_t>(entry.unit);
      auto& list = segments_of_[unit == FlatModel::kRoot ? nullptr : model.layers()[unit - 1]];
      if (std::find(list.begin(), list.end(), entry.segment) == list.end()) list.push_back(entry.segment);
    }
  }

  void receive(std::size_t i, const at::Tensor& gradient) {
    if (!in_backward_) return;
    if constexpr (kStage == ZeROStage::gradients)
      reducer_->receive(i, gradient);
    else if (sync_ == Sync::now)
      reducer_->ready(i, gradient);
    else
      reducer_->defer(i, gradient);
  }
  at::Tensor place(std::size_t i) {
    if constexpr (kStage == ZeROStage::optimizer)
      return reducer_->place(i);
    else
      return {};
  }

  Config config_;
  Group* group_;
  Arena trainable_;
  Arena frozen_;
  SharedBuffers buffers_;
  std::map<const Layer*, std::vector<std::size_t>> segments_of_;
  std::vector<Pending> gathers_;
  StepSegment step_;
  std::optional<SteppedSegments> stepped_;
  std::optional<std::conditional_t<kStage == ZeROStage::optimizer, Reducer, ShardBuckets>> reducer_;
  int exceptions_ = std::uncaught_exceptions();
  bool in_backward_ = false;
  GradientHooks hooks_;
  Sync sync_ = Sync::now;
};

using ZeRO1 = ZeRO<ZeROStage::optimizer>;
using ZeRO2 = ZeRO<ZeROStage::gradients>;

static_assert(ParallelStrategy<ZeRO1> && explain_strategy<ZeRO1>());
static_assert(ParallelStrategy<ZeRO2> && explain_strategy<ZeRO2>());

}  // namespace ddpxx
