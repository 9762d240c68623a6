// rows.hpp — a dataset for tests of models that need no text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <torch/torch.h>

#include <ddpxx/data/batch.hpp>

namespace ddpxx {

/// Sample i is a row of numbers that depends only on i.
struct Rows {
  static constexpr std::int64_t kWidth = 6;

  std::int64_t size() const { return 32; }
  Batch batch(std::span<const std::int64_t> indices) const {
    const auto rows = at::tensor(std::vector<std::int64_t>{indices.begin(), indices.end()}, at::kLong).unsqueeze(1);
    const auto inputs = ((rows * 5 + at::arange(kWidth) * 3) % 13 - 6).to(at::kFloat) / 13;
    return {inputs, inputs.square().sum(1), rows.size(0)};
  }
};

}  // namespace ddpxx
