// ddpxx/flat/gradient_hooks.hpp — takes gradients from autograd as soon as they are complete.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <ddpxx/flat/arena.hpp>

namespace ddpxx {

/// When autograd has finished the gradient of the i-th parameter of an arena, takes it out of `.grad`, which is
/// undefined afterwards, and calls `receive(i, gradient)`. A backward pass between two steps, as of a model in which
/// this one is a part, calls it too: a strategy drops such gradients, as zero_grad() would. `.grad` must be undefined
/// when a backward pass begins. The gradient is undefined for a parameter that is in the graph without contributing to
/// the loss. The destructor removes the hooks.
class GradientHooks {
 public:
  using Receive = std::function<void(std::size_t, const at::Tensor&)>;
  /// Returns memory of the size and type of the i-th parameter, or an undefined tensor.
  using Place = std::function<at::Tensor(std::size_t)>;

  GradientHooks() = default;
  GradientHooks(const Arena& arena, Receive receive, Place place = {})
      : calls_{std::make_shared<Calls>(Calls{std::move(receive), std::move(place)})} {
    for (std::size_t i = 0; i < arena.size(); ++i) {
      parameters_.push_back(arena[i].parameter);
      torch::autograd::impl::set_post_acc_grad_hooks(parameters_.back(), std::make_unique<Hook>(i, calls_));
    }
  }
  GradientHooks(GradientHooks&&) noexcept = default;
  GradientHooks& operator=(GradientHooks&& other) noexcept {
    remove();
    calls_ = std::move(other.calls_);
    parameters_ = std::exchange(other.parameters_, {});
    return *this;
  }
  ~GradientHooks() { remove(); }

  /// The memory in which the backward pass of an operation may write the gradient of a parameter that requires one, and
  /// which it then returns, so that the gradient need not be copied there. Undefined where there is none.
  static at::Tensor place_of(const at::Tensor& parameter) {
    if (!parameter.requires_grad()) return {};  // it may have no place for hooks, which is an error of LibTorch's
    const auto* hook = dynamic_cast<Hook*>(torch::autograd::impl::post_acc_grad_hooks(parameter).get());
    return hook != nullptr ? hook->place() : at::Tensor{};
  }

 private:
  struct Calls {
    Receive receive;
    Place place;
  };

  class Hook : public torch::autograd::PostAccumulateGradHook {
   public:
    Hook(std::size_t i, std::shared_ptr<Calls> calls) : i_{i}, calls_{std::move(calls)} {}
    void operator()(const torch::autograd::Variable& parameter) override {
      const at::Tensor gradient = std::exchange(parameter.mutable_grad(), {});
      calls_->receive(i_, gradient);
    }
    at::Tensor place() const { return calls_->place ? calls_->place(i_) : at::Tensor{}; }

   private:
    std::size_t i_;
    std::shared_ptr<Calls> calls_;
  };

  void remove() noexcept {
    for (const auto& parameter : parameters_) torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  }

  std::shared_ptr<Calls> calls_;
  std::vector<at::Tensor> parameters_;
};

}  // namespace ddpxx
