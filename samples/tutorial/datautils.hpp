// datautils.hpp — the data and the model that the programs of the tutorial share.
#pragma once

#include <cstdint>
#include <span>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>

#include <ddpxx/ddpxx.hpp>

/// Random samples of 20 numbers each. The target of a sample is the mean of its numbers, so that there is something to
/// learn. All ranks draw equal samples.
class MyTrainDataset {
 public:
  explicit MyTrainDataset(std::int64_t size)
      : inputs_{at::rand({size, 20}, at::detail::createCPUGenerator(/*seed_val=*/0))},
        targets_{inputs_.mean(1, /*keepdim=*/true)} {}

  std::int64_t size() const { return inputs_.size(0); }

  ddpxx::Batch batch(std::span<const std::int64_t> indices) const {
    const auto rows = at::tensor(at::ArrayRef<std::int64_t>{indices.data(), indices.size()});
    return {inputs_.index_select(0, rows), targets_.index_select(0, rows), rows.numel()};
  }

 private:
  at::Tensor inputs_, targets_;
};

/// One linear layer, with the mean squared error as its loss.
struct ToyModel : torch::nn::Module {
  ddpxx::Loss forward(const ddpxx::Batch& batch) {
    return {at::mse_loss(net(batch.inputs), batch.targets, at::Reduction::Sum)};
  }
  torch::nn::Linear net = register_module("net", torch::nn::Linear{20, 1});
};
