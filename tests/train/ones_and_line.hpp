// The smallest data and model that a trainer accepts, for tests of configurations.
#pragma once

#include <cstdint>
#include <span>

#include <torch/torch.h>

#include <ddpxx/data/batch.hpp>
#include <ddpxx/nn/loss.hpp>

namespace ddpxx {

struct Ones {
  std::int64_t size() const { return 4; }
  Batch batch(std::span<const std::int64_t> indices) const {
    const auto rows = static_cast<std::int64_t>(indices.size());
    return {torch::ones({rows, 2}), torch::ones({rows, 1}), rows};
  }
};
struct Line : torch::nn::Module {
  torch::nn::Linear line{register_module("line", torch::nn::Linear{2, 1})};
  Loss forward(const Batch& batch) { return {torch::mse_loss(line(batch.inputs), batch.targets, at::Reduction::Sum)}; }
};

}  // namespace ddpxx
