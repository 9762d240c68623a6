// tests/embed/points.hpp — a dataset and a model that a host defines, small enough to train in a moment.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <torch/nn/module.h>

#include <ddpxx/data/batch.hpp>
#include <ddpxx/nn/concept.hpp>

namespace embed {

/// 64 points of the line y = 3x - 1.
struct Points {
  std::int64_t size() const { return 64; }
  ddpxx::Batch batch(std::span<const std::int64_t> indices) const {
    std::vector<float> x, y;
    for (const auto index : indices) {
      x.push_back(static_cast<float>(index) / 64);
      y.push_back(3 * x.back() - 1);
    }
    const auto count = static_cast<std::int64_t>(indices.size());
    return {at::tensor(x).view({count, 1}), at::tensor(y).view({count, 1}), count};
  }
};

struct Line : torch::nn::Module {
  Line() {
    hidden = register_parameter("hidden", at::rand({16, 1}));
    slope = register_parameter("slope", at::rand({1, 16}));
    offset = register_parameter("offset", at::rand({1}));
  }
  ddpxx::Loss forward(const ddpxx::Batch& batch) {
    const auto y = at::linear(at::linear(batch.inputs, hidden), slope, offset);
    return {(y - batch.targets).square().sum()};
  }
  at::Tensor hidden, slope, offset;
};

}  // namespace embed
