// ddpxx/parallel/ddp.hpp — distributed data parallel: every rank holds the whole model, gradients are averaged.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/flat/gradients.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/parallel/ddp_config.hpp>
#include <ddpxx/parallel/reducer.hpp>
#include <ddpxx/parallel/same_model.hpp>

namespace ddpxx {

/// Every rank holds the whole model and a share of each batch; gradients are averaged while backward runs.
/// At the start the ranks' models are compared, then rank 0's parameters and buffers are given to all; buffers are
/// given again before each step's first forward pass.
/// Errors  `peer` naming the first parameter that differs between ranks; those of `Reducer`.
/// Source  Li et al. 2020, arXiv:2006.15704; gradients agree bit for bit with PyTorch's DDP at two ranks.
class DDP {
 public:
  using Config = DDPConfig;

  DDP(const Config& config, Group& group) : config_{config}, group_{&group} {}
  DDP(const DDP&) = delete;
  DDP& operator=(const DDP&) = delete;

  void attach(FlatModel& model) {
    check_same_model(model, *group_);
    arena_ = &model.trainable();
    broadcast(arena_->values(), *group_);
    if (model.frozen().size() > 0) broadcast(model.frozen().values(), *group_);
    buffers_ = model.buffers();
    broadcast_buffers();
    slices_ = arena_->slices();
    reducer_.emplace(
        *arena_, *group_,
        ReducerOptions{.first_bucket_bytes = config_.first_bucket_bytes,
                       .bucket_bytes = config_.bucket_bytes,
                       .unused = config_.find_unused_parameters ? UnusedParameters::find : UnusedParameters::refuse});
    hooks_ = GradientHooks{*arena_, [this](std::size_t i, const at::Tensor& gradient) {
                             if (sync_ == Sync::now)
                               reducer_->ready(i, gradient);
                             else
                               reducer_->defer(i, gradient);
                           }};
  }

  std::span<const Slice> slices() const { return slices_; }
  auto runner() { return LayerRunner{plain_}; }

  void begin_backward(Sync sync) {
    sync_ = sync;
    reducer_->begin();
    if (std::exchange(step_begins_, sync == Sync::now) && config_.broadcast_buffers) broadcast_buffers();
  }
  void finish_backward() {
    if (sync_ == Sync::now) reducer_->finish();
  }

  at::Tensor sum_over_shards(at::Tensor value) const { return value; }
  auto gathered() { return std::monostate{}; }

 private:
  void broadcast_buffers() {
    for (const auto& buffer : buffers_) broadcast(buffer, *group_);
  }

  Config config_;
  Group* group_;
  PlainCall plain_;
  Arena* arena_ = nullptr;
  std::vector<at::Tensor> buffers_;
  std::vector<Slice> slices_;
  std::optional<Reducer> reducer_;
  GradientHooks hooks_;
  Sync sync_ = Sync::now;
  bool step_begins_ = true;
};

static_assert(ParallelStrategy<DDP> && explain_strategy<DDP>());

}  // namespace ddpxx
