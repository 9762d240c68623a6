// ddpxx/train/evaluate.hpp — the mean loss and metrics over a validation set, each sample counted exactly once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/data/concept.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/train/metric_sums.hpp>
#include <ddpxx/train/step_facts.hpp>

namespace ddpxx {

struct EvaluationResult {
  double mean_loss = 0.0;
  std::int64_t samples = 0;
  Metrics metrics = {};  ///< The model's own.
};

/// The mean of `loss_of(batch)`, a `Loss`, over the targets of the first `limit` samples (0: of all), and of its
/// metrics. The ranks share the samples without padding. All make the same number of calls, since a sharded model
/// gathers in each: a rank that has run out of samples repeats the first one, and does not count it. After each call
/// `tell(samples, all_samples)` is given the number of samples that all ranks together have begun with.
///
/// `loss_of` must record no gradients (see EvaluationMode), and `batch_size` is at least 1.
/// Ranks   Collective.
/// Errors  `data` on every rank where there are no samples, or the batches count no targets; `peer` on every rank where
///         the ranks have other metrics; `config` where the metrics of a batch differ from those of an earlier one.
template <MapDataset Dataset, class LossOf, class Tell>
EvaluationResult evaluate(const Dataset& dataset, const Group& group, std::int64_t batch_size, std::int64_t limit,
                          LossOf&& loss_of, Tell&& tell) {
  if (dataset.size() < 1) throw Error{Errc::data, "the validation set is empty: there is nothing to evaluate on"};
  const auto samples = limit > 0 ? std::min(limit, dataset.size()) : dataset.size();
  auto sums = at::zeros({2}, at::TensorOptions{}.dtype(at::kDouble).device(group.device()));
  std::vector<std::int64_t> indices;
  MetricSums metrics;
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
    metrics.expect(loss.metrics);
    tell(std::min((call + 1) * batch_size * group.size(), samples), samples);
    if (!counts) continue;
    sums[0].add_(loss.sum);
    metrics.add(loss.metrics, batch.num_tokens);
    targets += static_cast<double>(batch.num_tokens);
  }
  sums[1].fill_(targets);
  check_same_metrics(metrics.names(), group);
  if (!metrics.names().empty()) {
    auto more = at::zeros({metrics.num_numbers()}, sums.options());
    metrics.write(more);
    sums = at::cat({sums, more});
  }
  all_reduce(sums, group);
  if (sums[1].template item<double>() == 0)
    throw Error{
        Errc::data,
        "the validation batches count no targets, so that there is no mean loss: set num_tokens of each batch to "
        "the number of its targets that enter the loss"};
  HostCopy numbers{sums};
  return {(sums[0] / sums[1]).template item<double>(), samples, read_metrics(metrics.names(), numbers, 2)};
}

}  // namespace ddpxx
