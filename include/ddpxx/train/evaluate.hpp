// ddpxx/train/evaluate.hpp — the mean loss over a validation set, each sample counted exactly once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/data/concept.hpp>

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

struct EvaluationResult {
  double mean_loss = 0.0;
  std::int64_t samples = 0;
};

/// The mean of `loss_of(batch)`, a loss sum, over the targets of the first `limit` samples (0: of all). The ranks share
/// the samples without padding, so their batches may differ in number: they meet once, at the end.
/// Ranks   Collective.
template <MapDataset Dataset, class LossOf>
EvaluationResult evaluate(const Dataset& dataset, const Group& group, std::int64_t batch_size, std::int64_t limit,
                          LossOf&& loss_of) {
  const auto samples = limit > 0 ? std::min(limit, dataset.size()) : dataset.size();
  auto sums = at::zeros({2}, at::TensorOptions{}.dtype(at::kDouble).device(group.device()));
  std::vector<std::int64_t> indices;
  double targets = 0;
  const auto add_batch = [&] {
    const auto batch = dataset.batch(indices);
    sums[0].add_(loss_of(batch));
    targets += static_cast<double>(batch.num_tokens);
    indices.clear();
  };
  for (std::int64_t i = group.rank(); i < samples; i += group.size()) {
    indices.push_back(i);
    if (std::ssize(indices) == batch_size) add_batch();
  }
  if (!indices.empty()) add_batch();
  sums[1].fill_(targets);
  all_reduce(sums, group);
  return {(sums[0] / sums[1]).template item<double>(), samples};
}

}  // namespace ddpxx
