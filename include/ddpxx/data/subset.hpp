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
#include <ddpxx/data/concept.hpp>

namespace ddpxx {

/// Sample i is sample `indices[i]` of the dataset. Subsets share the dataset and keep it alive.
/// Shapes  `indices` int64 [n] on the CPU, as random_split returns it.
/// Errors  `data` for a sample that the subset or the dataset does not have.
template <MapDataset Dataset>
class Subset {
 public:
  Subset(std::shared_ptr<const Dataset> dataset, const at::Tensor& indices)
      : dataset_{std::move(dataset)}, indices_{indices.contiguous()} {
    for (const auto index : view())
      if (index < 0 || index >= dataset_->size())
        throw Error{Errc::data, "subset: sample " + std::to_string(index) + " of a dataset with " +
                                    std::to_string(dataset_->size())};
  }

  std::int64_t size() const { return indices_.numel(); }
  const Dataset& dataset() const noexcept { return *dataset_; }

  BatchOf<Dataset> batch(std::span<const std::int64_t> indices) const {
    std::vector<std::int64_t> translated;
    translated.reserve(indices.size());
    for (const auto index : indices) {
      if (index < 0 || index >= size())
        throw Error{Errc::data, "subset: sample " + std::to_string(index) + " of " + std::to_string(size())};
      translated.push_back(view()[static_cast<std::size_t>(index)]);
    }
    return dataset_->batch(translated);
  }

 private:
  std::span<const std::int64_t> view() const {
    return {indices_.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(indices_.numel())};
  }

  std::shared_ptr<const Dataset> dataset_;
  at::Tensor indices_;
};

}  // namespace ddpxx
