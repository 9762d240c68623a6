// ddpxx/data/subset.hpp — some samples of a dataset as a dataset.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/core/crc32c.hpp>
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

  /// The facts that the whole dataset records, and which samples the subset has, so that no run resumes on another
  /// part. A subset of a subset says both in one fact. Snapshots without this fact still resume.
  Settings recorded() const {
    static constexpr auto kPath = "the samples of the subset";
    auto facts = recorded_facts(*dataset_);
    const auto inner = std::find_if(facts.begin(), facts.end(), [](const Setting& fact) { return fact.path == kPath; });
    if (inner == facts.end())
      facts.push_back({kPath, samples_text(), Resume::must_match, {}});
    else
      inner->value = samples_text() + ", of these: " + inner->value;
    return facts;
  }

 private:
  /// The dataset's index of the subset's sample `index`.
  std::int64_t at(std::int64_t index) const {
    return indices_.defined() ? indices_.const_data_ptr<std::int64_t>()[index] : range_.first + index * range_.stride;
  }
  std::string samples_text() const {
    const auto count = std::to_string(size()) + " samples";
    if (!indices_.defined())
      return count + ", the first is " + std::to_string(range_.first) + ", each " + std::to_string(range_.stride) +
             " behind the one before";
    const std::span<const std::int64_t> all{indices_.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(size())};
    return count + ", CRC-32C " + crc32c_text(crc32c(std::as_bytes(all)));
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
