// ddpxx/train/evaluate.hpp — the mean loss over a validation set, each sample counted exactly once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/data/concept.hpp>

namespace ddpxx {

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
  if (dataset.size() < 1) throw Error{Errc::data, "the validation set is empty: there is nothing to evaluate on"};
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
