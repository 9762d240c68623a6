// ddpxx/nn/evaluation_mode.hpp — a scope in which a model is evaluated.
#pragma once

#include <utility>
#include <vector>

#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

namespace ddpxx {

/// A scope in which a model is in evaluation mode and autograd records no graph. Afterwards each of its modules has its
/// mode from before.
class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& model) {
    modes_.emplace_back(&model, model.is_training());
    for (const auto& part : model.modules(/*include_self=*/false)) modes_.emplace_back(part.get(), part->is_training());
    model.eval();
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;
  ~EvaluationMode() {
    for (const auto& [part, was_training] : modes_)
      if (part->is_training() != was_training) part->train(was_training);
  }

 private:
  // A module comes before those inside it, which train() sets too.
  std::vector<std::pair<torch::nn::Module*, bool>> modes_;
  c10::NoGradGuard no_grad_;
};

}  // namespace ddpxx
