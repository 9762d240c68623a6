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
/// the samples without padding. All make the same number of calls, since a sharded model gathers in each: a rank that
/// has run out repeats its first sample, and does not count it. After each call `tell(samples, all_samples)` is told
/// how many samples all ranks together have begun with.
///
/// Ranks   Collective.
/// Errors  `data` on every rank where there are no samples, or the batches count no targets.
template <MapDataset Dataset, class LossOf, class Tell>
EvaluationResult evaluate(const Dataset& dataset, const Group& group, std::int64_t batch_size, std::int64_t limit,
                          LossOf&& loss_of, Tell&& tell) {
  if (dataset.size() < 1) throw Error{Errc::data, "the validation set is empty: there is nothing to evaluate on"};
  const auto samples = limit > 0 ? std::min(limit, dataset.size()) : dataset.size();
  auto sums = at::zeros({2}, at::TensorOptions{}.dtype(at::kDouble).device(group.device()));
  std::vector<std::int64_t> indices;
  double targets = 0;
  const auto most_samples = (samples + group.size() - 1) / group.size();
  const auto calls = (most_samples + batch_size - 1) / batch_size;
  std::int64_t next = group.rank();
  for (std::int64_t call = 0; call < calls; ++call) {
    for (indices.clear(); next < samples && std::ssize(indices) < batch_size; next += group.size())
      indices.push_back(next);
    const bool counts = !indices.empty();
    if (!counts) indices.push_back(0);
    const auto batch = dataset.batch(indices);
    const auto loss = loss_of(batch);
    tell(std::min((call + 1) * batch_size * group.size(), samples), samples);
    if (!counts) continue;
    sums[0].add_(loss);
    targets += static_cast<double>(batch.num_tokens);
  }
  sums[1].fill_(targets);
  all_reduce(sums, group);
  if (sums[1].template item<double>() == 0)
    throw Error{
        Errc::data,
        "the validation batches count no targets, so that there is no mean loss: set num_tokens of each batch to "
        "the number of its targets that enter the loss"};
  return {(sums[0] / sums[1]).template item<double>(), samples};
}

}  // namespace ddpxx
