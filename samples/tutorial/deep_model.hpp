// deep_model.hpp — a model of many equal layers, for the programs that shard layers or compute them again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "datautils.hpp"

struct DeepModelConfig {
  std::int64_t layers = 8;
  std::int64_t width = 64;

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(field<&DeepModelConfig::layers>("Number of equal layers", at_least(1), Resume::must_match),
                  field<&DeepModelConfig::width>("Size of the output of each layer but the last", at_least(1),
                                                 Resume::must_match));
  }
};

/// A layer that repeats. Its base class Layer lets a strategy act around it: gather its parameters, or run it again.
struct Block : torch::nn::Module, ddpxx::Layer {
  explicit Block(std::int64_t width) : linear{register_module("linear", torch::nn::Linear{width, width})} {}
  at::Tensor forward(const at::Tensor& x) { return x + at::gelu(linear(x)); }
  torch::nn::Linear linear;
};

/// The blocks between two linear layers, for the data of the tutorial.
struct DeepModel : torch::nn::Module {
  explicit DeepModel(const DeepModelConfig& config)
      : stem{register_module("stem", torch::nn::Linear{20, config.width})},
        head{register_module("head", torch::nn::Linear{config.width, 1})} {
    for (std::int64_t i = 0; i < config.layers; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), std::make_shared<Block>(config.width)));
  }
  template <class Run>
  ddpxx::Loss forward(Run& run, const ddpxx::Batch& batch) {
    return {at::mse_loss(head(run(blocks, stem(batch.inputs))), batch.targets, at::Reduction::Sum)};
  }
  torch::nn::Linear stem, head;
  std::vector<std::shared_ptr<Block>> blocks;
};
