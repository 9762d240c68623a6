// ddpxx/nn/evaluation_mode.hpp — a scope in which a model is evaluated.
#pragma once

#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

namespace ddpxx {

/// A scope in which a model is in evaluation mode and autograd records no graph. Afterwards the model has its mode from
/// before.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& model) : model_{&model}, was_training_{model.is_training()} {
    model.eval();
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;
  ~EvaluationMode() { model_->train(was_training_); }

 private:
  torch::nn::Module* model_;
  bool was_training_;
  c10::NoGradGuard no_grad_;
};

}  // namespace ddpxx
