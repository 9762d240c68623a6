// ddpxx/data/subset.hpp — some samples of a dataset as a dataset.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/data/batch_context.hpp>
#include <ddpxx/data/concept.hpp>

namespace ddpxx {

/// The samples first, first + stride, first + 2 * stride, ... of a dataset: `count` of them.
struct SampleRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t stride = 1;
};

/// Some samples of a dataset, in any order: sample i is the dataset's sample `indices[i]`, or the i-th of a range,
/// which takes no memory. Subsets share the dataset and keep it alive.
/// Shapes  `indices` int64 [n] on the CPU, as random_split returns it.
/// Errors  `data` for a sample that the subset or the dataset does not have.
template <MapDataset Dataset>
class Subset {
 public:
  Subset(std::shared_ptr<const Dataset> dataset, const at::Tensor& indices)
      : dataset_{std::move(dataset)}, range_{.count = indices.numel()}, indices_{indices.contiguous()} {
    for (std::int64_t i = 0; i < size(); ++i) check(at(i));
  }
  Subset(std::shared_ptr<const Dataset> dataset, const SampleRange& range)
      : dataset_{std::move(dataset)}, range_{range} {
    if (range.count < 0 || range.stride < 1)
      throw Error{Errc::data, "subset: a range of " + std::to_string(range.count) + " samples with a stride of " +
                                  std::to_string(range.stride)};
    if (range.count == 0) return;
    check(at(0));
    check(at(range.count - 1));
  }

  std::int64_t size() const { return range_.count; }
  const Dataset& dataset() const noexcept { return *dataset_; }

  BatchOf<Dataset> batch(std::span<const std::int64_t> indices) const { return dataset_->batch(translate(indices)); }

  /// The dataset receives its own indices, so that `context` draws for a sample as it does without the subset.
  BatchOf<Dataset> batch(std::span<const std::int64_t> indices, const BatchContext& context) const
    requires UsesBatchContext<Dataset>
  {
    return dataset_->batch(translate(indices), context);
  }

  /// The facts that the whole dataset records.
  Settings recorded() const
    requires RecordsFacts<Dataset>
  {
    return dataset_->recorded();
  }

 private:
  /// The dataset's index of the subset's sample `index`.
  std::int64_t at(std::int64_t index) const {
    return indices_.defined() ? indices_.const_data_ptr<std::int64_t>()[index] : range_.first + index * range_.stride;
  }
  void check(std::int64_t sample) const {
    if (sample < 0 || sample >= dataset_->size())
      throw Error{Errc::data, "subset: sample " + std::to_string(sample) + " of a dataset with " +
                                  std::to_string(dataset_->size())};
  }
  std::vector<std::int64_t> translate(std::span<const std::int64_t> indices) const {
    std::vector<std::int64_t> translated;
    translated.reserve(indices.size());
    for (const auto index : indices) {
      if (index < 0 || index >= size())
        throw Error{Errc::data, "subset: sample " + std::to_string(index) + " of " + std::to_string(size())};
      translated.push_back(at(index));
    }
    return translated;
  }

  std::shared_ptr<const Dataset> dataset_;
  SampleRange range_;
  at::Tensor indices_;  ///< Undefined if `range_` says which samples.
};

}  // namespace ddpxx
