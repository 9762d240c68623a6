// ddpxx/parallel/single_device.hpp — one process, nothing to synchronize.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/gradients.hpp>
#include <ddpxx/parallel/concept.hpp>

namespace ddpxx {

/// One process that holds everything: the smallest strategy, and the reference for every other. A parameter that gets
/// no gradient counts as one with zeros.
/// Errors  `config` in a group of more than one rank, which would train W models apart from each other.
class SingleDevice {
 public:
  struct Config {};

  SingleDevice(const Config&, Group& group) {
    if (group.size() > 1)
      throw Error{Errc::config, "strategy single_device runs one process, but this group has " +
                                    std::to_string(group.size()) + "; choose ddp, or start one process"};
  }

  void attach(FlatModel& model) {
    arena_ = &model.trainable();
    slices_ = arena_->slices();
    sum_.emplace(*arena_);
    hooks_ = GradientHooks{*arena_, [this](std::size_t i, const at::Tensor& gradient) { sum_->add(i, gradient); }};
  }
  SingleDevice(const SingleDevice&) = delete;
  SingleDevice& operator=(const SingleDevice&) = delete;

  std::span<const Slice> slices() const { return slices_; }
  auto runner() { return LayerRunner{plain_}; }

  void begin_backward(Sync sync) {
    sync_ = sync;
    sum_->hide();
  }
  void finish_backward() {
    if (sync_ == Sync::now) sum_->publish();
  }

  at::Tensor sum_over_shards(at::Tensor value) const { return value; }
  auto gathered() { return std::monostate{}; }

 private:
  PlainCall plain_;
  Arena* arena_ = nullptr;
  std::vector<Slice> slices_;
  std::optional<GradientSum> sum_;
  GradientHooks hooks_;
  Sync sync_ = Sync::now;
};

static_assert(ParallelStrategy<SingleDevice> && explain_strategy<SingleDevice>());

}  // namespace ddpxx
