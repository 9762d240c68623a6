// ddpxx/train/metric_sums.hpp — sums of a model's own metrics over batches, with names that are equal on all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/nn/loss.hpp>
#include <ddpxx/observe/events.hpp>

namespace ddpxx {

namespace detail {

std::vector<std::string> names_of(const std::vector<NamedSum>& metrics);

/// `[accuracy, top5]`
std::string names_text(const std::vector<std::string>& names);

/// Errors  `config` for a name that rows of metrics cannot have.
void check_metric_names(const std::vector<std::string>& names);

}  // namespace detail

/// The metrics of a batch out of those of its parts, which the model has computed one by one.
/// Errors  `config` where the parts differ in the names or in what has a count, or a sum or count is not a 0-dim
///         tensor.
std::vector<NamedSum> join_metrics(std::span<std::vector<NamedSum>> parts);

/// Adds up the metrics that a model returns beside its loss.
class MetricSums {
 public:
  /// Adds the metrics of a batch, which has `targets` targets.
  /// Errors  `config` for other names than in the calls before.
  void add(const std::vector<NamedSum>& metrics, std::int64_t targets) {
    expect(metrics);
    for (std::size_t i = 0; i < metrics.size(); ++i) {
      auto& [sum, count, counted] = sums_[i];
      add_to(sum, metrics[i].sum);
      if (metrics[i].count.defined())
        add_to(count, metrics[i].count);
      else
        counted += static_cast<double>(targets);
    }
  }
  /// The names of `metrics` are those that all batches have; their values are not added.
  /// Errors  `config` for other names than in the calls before.
  void expect(const std::vector<NamedSum>& metrics) {
    auto names = detail::names_of(metrics);
    if (!std::exchange(has_names_, true)) {
      detail::check_metric_names(names);
      names_ = std::move(names);
      sums_.resize(names_.size());
    } else if (names != names_) {
      throw Error{Errc::config, "the model returned the metrics " + detail::names_text(names) + " for a batch, but " +
                                    detail::names_text(names_) +
                                    " for an earlier one: return the same names in the same order for each batch"};
    }
  }

  const std::vector<std::string>& names() const noexcept { return names_; }
  /// How many numbers write() writes: a sum and a count for each metric.
  std::int64_t num_numbers() const { return 2 * std::ssize(names_); }
  /// Writes sum, count, sum, count and so on. Nothing is read from a device.
  void write(const at::Tensor& into) const {
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      const auto& [sum, count, counted] = sums_[i];
      const auto at = 2 * static_cast<std::int64_t>(i);
      if (sum.defined()) into.select(0, at).copy_(sum, /*non_blocking=*/true);
      auto total = into.select(0, at + 1);
      total.fill_(counted);
      if (count.defined()) total.add_(count.to(into.device(), /*non_blocking=*/true));
    }
  }

 private:
  struct Sum {
    at::Tensor sum = {};
    at::Tensor count = {};  ///< Sum of the counts, for a metric that has a count of its own.
    double counted = 0;     ///< Targets of the batches whose metric has no count of its own.
  };
  static void add_to(at::Tensor& total, const at::Tensor& value) {
    const auto exact = value.detach().to(at::kDouble);
    total = total.defined() ? total + exact.to(total.device()) : exact;
  }

  bool has_names_ = false;
  std::vector<std::string> names_;
  std::vector<Sum> sums_;  ///< One for each name.
};

/// Compares the names of the model's metrics, which decide what the ranks send each other.
/// Ranks   Collective; every rank comes to the same verdict.
/// Errors  `peer` naming the metrics of each rank.
void check_same_metrics(const std::vector<std::string>& names, const Group& group);

/// The metrics whose sums and counts lie one after the other in `numbers`, from `first` on. A metric that has counted
/// nothing is not a number.
template <class Numbers>
Metrics read_metrics(const std::vector<std::string>& names, Numbers& numbers, std::int64_t first) {
  Metrics metrics;
  for (const auto& name : names) {
    metrics.push_back({name, numbers[first] / numbers[first + 1]});
    first += 2;
  }
  return metrics;
}

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/metric_sums_inl.hpp>
#endif
