// ddpxx/data/weighted_samples.hpp — a dataset whose samples are drawn by weights, such as rare classes more often.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/data/batch_context.hpp>
#include <ddpxx/data/concept.hpp>
#include <ddpxx/data/split_mix.hpp>

namespace ddpxx {

/// Draws from a dataset with replacement: each of the `size()` samples of an epoch is the dataset's sample i with
/// probability weights[i] / sum of the weights. What is drawn is a pure function of the run's seed, the epoch and the
/// number of the draw, so that any number of ranks trains on the same samples, and a run that resumes goes on with
/// them.
///
/// Batches without a context, as evaluations ask for, have the draws of seed 0 and epoch 0: evaluate the dataset
/// itself. A dataset that augments with a context augments a sample that is drawn twice in an epoch equally.
/// Errors  `config` for another number of weights than the dataset has samples, for a weight that is negative or not
///         finite, for weights that are all 0, and for fewer than one draw; `data` for a draw that an epoch does not
///         have.
/// Source  torch.utils.data.WeightedRandomSampler, with other random numbers.
template <MapDataset Dataset>
class WeightedSamples {
 public:
  /// An epoch has `draws` samples.
  WeightedSamples(std::shared_ptr<const Dataset> dataset, std::span<const double> weights, std::int64_t draws)
      : dataset_{std::move(dataset)}, draws_{draws}, checksum_{crc32c(std::as_bytes(weights))} {
    if (std::ssize(weights) != dataset_->size())
      throw Error{Errc::config, "weighted samples: " + std::to_string(weights.size()) + " weights for a dataset with " +
                                    std::to_string(dataset_->size()) + " samples: give each sample a weight"};
    if (draws < 1)
      throw Error{Errc::config, "weighted samples: an epoch of " + std::to_string(draws) + " draws; make at least 1"};
    double sum = 0;
    for (const double weight : weights) {
      if (!(weight >= 0) || !std::isfinite(weight))
        throw Error{Errc::config, "weighted samples: weight " + std::to_string(sums_.size()) + " is " +
                                      std::to_string(weight) + "; a weight is a number of at least 0"};
      sums_.push_back(sum += weight);
    }
    if (!(sum > 0) || !std::isfinite(sum))
      throw Error{Errc::config, "weighted samples: the sum of the weights is " + std::to_string(sum) +
                                    ", so that no sample can be drawn by them"};
  }
  /// An epoch has as many samples as the dataset.
  WeightedSamples(std::shared_ptr<const Dataset> dataset, std::span<const double> weights)
      : WeightedSamples{dataset, weights, dataset->size()} {}

  std::int64_t size() const noexcept { return draws_; }
  const Dataset& dataset() const noexcept { return *dataset_; }

  BatchOf<Dataset> batch(std::span<const std::int64_t> indices) const { return dataset_->batch(drawn(indices, {})); }
  BatchOf<Dataset> batch(std::span<const std::int64_t> indices, const BatchContext& context) const {
    return make_batch(*dataset_, drawn(indices, context), context);
  }

  /// The facts that the dataset records, and a checksum of the weights, so that no run resumes with others.
  Settings recorded() const {
    auto facts = recorded_facts(*dataset_);
    facts.push_back({"the weights of the samples",
                     std::to_string(draws_) + " draws by " + std::to_string(sums_.size()) + " weights, CRC-32C " +
                         crc32c_text(checksum_),
                     Resume::must_match,
                     {}});
    return facts;
  }

 private:
  std::vector<std::int64_t> drawn(std::span<const std::int64_t> indices, const BatchContext& context) const {
    std::vector<std::int64_t> samples;
    samples.reserve(indices.size());
    for (const auto index : indices) {
      if (index < 0 || index >= size())
        throw Error{Errc::data, "weighted samples: draw " + std::to_string(index) + " of " + std::to_string(size())};
      samples.push_back(sample(context.seed_of(index)));
    }
    return samples;
  }

  std::int64_t sample(std::uint64_t seed) const {
    // Hashed once more: the dataset may begin its own random numbers with the same seed.
    const double fraction = static_cast<double>(split_mix(seed) >> 11U) * 0x1p-53;
    // Rounding may give the sum of all weights, which no sample is beyond; those behind the last weight above 0 equal
    // it.
    const auto found = std::ranges::upper_bound(sums_, fraction * sums_.back());
    const auto last = std::ranges::lower_bound(sums_, sums_.back());
    return std::min(found, last) - sums_.begin();
  }

  std::shared_ptr<const Dataset> dataset_;
  std::int64_t draws_;
  std::uint32_t checksum_;
  std::vector<double> sums_;  ///< The sum of the weights up to that of each sample.
};

}  // namespace ddpxx
