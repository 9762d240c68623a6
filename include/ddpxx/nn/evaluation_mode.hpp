// ddpxx/nn/evaluation_mode.hpp — a scope in which a model is asked and not trained.
#pragma once

#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

namespace ddpxx {

/// A scope in which a model evaluates and records no graph; it goes back to its own mode afterwards.
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
