// ddpxx/train/anomaly_detector.hpp — finds the operation in which NaN begins.
#pragma once

#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>
#include <torch/nn/module.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/intercepted_operations.hpp>

namespace ddpxx {

/// Looks for NaN in what each operation of a forward and backward pass takes and returns. Each look waits for the
/// device, so that a step takes several times as long.
///
/// It sees the operations of LibTorch, but not the kernels of fused layers on a GPU. A block that is one operation on a
/// CPU is computed by its parts meanwhile.
///
/// Source  torch.autograd.detect_anomaly, which looks at the backward pass only.
class AnomalyDetector {
 public:
  /// The parameters of `model` are named in errors; those of copies, as DataParallel makes them, are not.
  explicit AnomalyDetector(const torch::nn::Module& model);

  /// While the result lives, an operation of this thread, or of a backward pass that it starts, throws after it has
  /// made NaN of numbers without NaN.
  /// Errors  `numerics`, with the operation, the pass, what it was given, the operation that has made the first infinite
  ///         number, and the parameter that was used last.
  InterceptedOperations watch() {
    last_parameter_.clear();
    first_infinite_.clear();
    return InterceptedOperations{[this](const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                                        torch::jit::Stack& stack) { call(op, keys, stack); }};
  }

  /// Refuses a loss that is NaN although no operation has thrown. Called before the backward pass, in which a strategy
  /// may step parameters.
  /// Errors  `numerics`, with the first parameter that holds NaN.
  void check_loss(const at::Tensor& loss) const;

 private:
  void call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack);
  void note_parameter(const std::vector<at::Tensor>& arguments);
  Error made_nan(const std::string& operation, std::span<const at::Tensor> arguments,
                 std::span<const at::Tensor> results) const;

  std::vector<std::pair<std::string, at::Tensor>> parameters_;
  std::mutex mutex_;  ///< For the texts: the threads of autograd for several GPUs run at once.
  std::string last_parameter_;
  std::string first_infinite_;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/anomaly_detector_inl.hpp>
#endif
