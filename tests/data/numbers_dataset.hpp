// tests/data/numbers_dataset.hpp — a dataset whose sample i is the number i; it can be told to fail or to wait.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <ddpxx/data/batch.hpp>
#include <ddpxx/data/concept.hpp>

struct NumbersDataset {
  std::int64_t num_samples = 0;
  std::function<void(std::span<const std::int64_t>)> before_batch = [](auto) {};

  std::int64_t size() const { return num_samples; }
  ddpxx::Batch batch(std::span<const std::int64_t> indices) const {
    before_batch(indices);
    auto inputs = at::empty({std::ssize(indices)}, at::kLong);
    std::copy(indices.begin(), indices.end(), inputs.mutable_data_ptr<std::int64_t>());
    return {inputs, inputs, std::ssize(indices)};
  }
};
static_assert(ddpxx::MapDataset<NumbersDataset>);

inline std::vector<std::int64_t> numbers(const ddpxx::Batch& batch) {
  const auto* data = batch.inputs.const_data_ptr<std::int64_t>();
  return {data, data + batch.inputs.numel()};
}
