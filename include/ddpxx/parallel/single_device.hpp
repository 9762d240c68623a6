// ddpxx/parallel/single_device.hpp — one process, nothing to synchronize.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>

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
  SingleDevice(const SingleDevice&) = delete;
  SingleDevice& operator=(const SingleDevice&) = delete;

  void attach(FlatModel& model) {
    trainable_ = Arena{model.trainable()};
    frozen_ = Arena{model.frozen(), {.gradients = Gradients::none}};
    sum_.emplace(trainable_);
    hooks_ = GradientHooks{trainable_, [this](std::size_t i, const at::Tensor& gradient) { sum_->add(i, gradient); }};
  }

  std::span<const Slice> slices() const { return trainable_.slices(); }
  const Arena& trainable() const { return trainable_; }
  const Arena& frozen() const { return frozen_; }

  template <class Next, class... Args>
  decltype(auto) around(Layers, Next&& next, Args&&... args) {
    return std::forward<Next>(next)(std::forward<Args>(args)...);
  }
  auto runner() { return LayerRunner{*this}; }
  template <class Model, class Batch, class Compute>
  at::Tensor forward(Model& model, const Batch& batch, Compute&& compute) {
    auto run = runner();
    return compute(model, run, batch);
  }

  void begin_backward(Sync sync) {
    trainable_.check_owned();
    sync_ = sync;
    sum_->hide();
  }
  void finish_backward() {
    if (sync_ == Sync::now) sum_->publish();
  }
  void finish_step() { trainable_.publish_masters(); }
  void settle() {}

  at::Tensor sum_over_shards(at::Tensor value) const { return value; }
  void assemble(at::Tensor whole, const at::Tensor& piece) const { whole.copy_(piece); }
  auto gathered() { return std::monostate{}; }

 private:
  Arena trainable_;
  Arena frozen_;
  std::optional<GradientSum> sum_;
  GradientHooks hooks_;
  Sync sync_ = Sync::now;
};

static_assert(ParallelStrategy<SingleDevice> && explain_strategy<SingleDevice>());

}  // namespace ddpxx
