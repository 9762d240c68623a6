// ddpxx/flat/gradients.hpp — moves gradients from autograd into flat memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <ddpxx/flat/arena.hpp>

namespace ddpxx {

/// Calls `receive(i, gradient)` as soon as autograd has finished the gradient of the i-th parameter of an arena, then
/// drops `.grad`, which must be undefined while a backward pass runs. The gradient is undefined for a parameter that
/// is in the graph without contributing to the loss. The destructor removes the hooks.
class GradientHooks {
 public:
  using Receive = std::function<void(std::size_t, const at::Tensor&)>;

  GradientHooks() = default;
  GradientHooks(const Arena& arena, Receive receive) : receive_{std::make_shared<Receive>(std::move(receive))} {
    for (std::size_t i = 0; i < arena.size(); ++i) {
      parameters_.push_back(arena[i].parameter);
      torch::autograd::impl::set_post_acc_grad_hooks(parameters_.back(), std::make_unique<Hook>(i, receive_));
    }
  }
  GradientHooks(GradientHooks&&) noexcept = default;
  GradientHooks& operator=(GradientHooks&& other) noexcept {
    remove();
    receive_ = std::move(other.receive_);
    parameters_ = std::exchange(other.parameters_, {});
    return *this;
  }
  ~GradientHooks() { remove(); }

 private:
  class Hook : public torch::autograd::PostAccumulateGradHook {
   public:
    Hook(std::size_t i, std::shared_ptr<Receive> receive) : i_{i}, receive_{std::move(receive)} {}
    void operator()(const torch::autograd::Variable& parameter) override {
      const at::Tensor gradient = std::exchange(parameter.mutable_grad(), {});
      (*receive_)(i_, gradient);
    }

   private:
    std::size_t i_;
    std::shared_ptr<Receive> receive_;
  };

  void remove() noexcept {
    for (const auto& parameter : parameters_) torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  }

  std::shared_ptr<Receive> receive_;
  std::vector<at::Tensor> parameters_;
};

/// Sums the gradients of one optimizer step, over one or more backward passes, in the arena. The first gradient of a
/// parameter replaces the last step's values, and zeros the gap behind the parameter; later gradients are added.
class GradientSum {
 public:
  /// `arena` has Gradients::whole.
  explicit GradientSum(Arena& arena) : arena_{&arena}, written_(arena.size(), false) {}

  /// True if this step has written a gradient of parameter `i`.
  bool written(std::size_t i) const { return written_[i]; }

  /// Adds one backward pass's gradient and scales the sum; an undefined gradient counts as zeros.
  void add(std::size_t i, const at::Tensor& gradient, double scale = 1.0) {
    at::Tensor view = (*arena_)[i].gradient;
    const bool first = begin(i);
    if (!gradient.defined()) {
      if (first)
        view.zero_();
      else if (scale != 1.0)
        view.mul_(scale);
    } else if (first) {
      if (scale == 1.0)
        view.copy_(gradient);
      else if (view.scalar_type() != gradient.scalar_type())
        view.copy_(gradient).mul_(scale);  // rounded once, in the sum's own type
      else
        at::mul_out(view, gradient, at::scalar_tensor(scale, at::kDouble));
    } else {
      view.add_(gradient);
      if (scale != 1.0) view.mul_(scale);
    }
  }

  /// Takes the values that the caller has written into the arena as the gradient of parameter `i`, and scales them.
  void take(std::size_t i, double scale) {
    begin(i);
    at::Tensor{(*arena_)[i].gradient}.mul_(scale);
  }

  /// Ends the step: gradients that were not written become zeros, and `.grad` becomes a view of each sum.
  void publish() {
    for (std::size_t i = 0; i < arena_->size(); ++i) {
      const auto& entry = (*arena_)[i];
      if (begin(i)) entry.gradient.zero_();
      written_[i] = false;
      if (entry.parameter.scalar_type() == entry.gradient.scalar_type())
        entry.parameter.mutable_grad() = entry.gradient;
    }
  }

  /// Drops what this step has written, because an exception has ended it.
  void drop() { written_.assign(written_.size(), false); }

  /// Makes `.grad` undefined before a backward pass, or autograd would add to it in place.
  void hide() {
    for (const auto& entry : arena_->entries()) entry.parameter.mutable_grad().reset();
  }

 private:
  /// True on the first call for parameter `i` in a step, which sets the gap behind the parameter to zero: clipping may
  /// have left NaN there, which no gradient overwrites.
  bool begin(std::size_t i) {
    if (written_[i]) return false;
    if (const auto& gap = (*arena_)[i].gap; gap.defined()) gap.zero_();
    written_[i] = true;
    return true;
  }

  Arena* arena_;
  std::vector<bool> written_;
};

}  // namespace ddpxx
