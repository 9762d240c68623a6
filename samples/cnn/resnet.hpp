// resnet.hpp — the residual network for images of 32 x 32 of He et al. 2016, arXiv:1512.03385, section 4.2, with a
// convolution in the shortcuts that change the shape.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <ddpxx/ddpxx.hpp>

struct ResNetConfig {
  std::int64_t width = 16;
  std::int64_t blocks = 1;

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(field<&ResNetConfig::width>(
                      "Channels of the first stage; the second has twice as many, the third four times", at_least(1)),
                  field<&ResNetConfig::blocks>("Blocks of each of the three stages", at_least(1)));
  }
};

/// A convolution without a bias, and a batch norm behind it.
struct NormedConv : torch::nn::Module {
  NormedConv(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride, const ddpxx::Group& group)
      : conv{register_module(
            "conv",
            torch::nn::Conv2d{
                torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false)})},
        norm{register_module("norm", std::make_shared<ddpxx::SyncBatchNorm>(out, group))} {}
  at::Tensor forward(const at::Tensor& x) { return norm->forward(conv(x)); }
  torch::nn::Conv2d conv;
  std::shared_ptr<ddpxx::SyncBatchNorm> norm;
};

/// Two convolutions, to which the input is added.
struct Block : torch::nn::Module, ddpxx::Layer {
  Block(std::int64_t in, std::int64_t out, std::int64_t stride, const ddpxx::Group& group)
      : first{register_module("first", std::make_shared<NormedConv>(in, out, 3, stride, group))},
        second{register_module("second", std::make_shared<NormedConv>(out, out, 3, 1, group))} {
    if (in != out) shortcut = register_module("shortcut", std::make_shared<NormedConv>(in, out, 1, stride, group));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto y = second->forward(at::relu(first->forward(x)));
    return at::relu(y + (shortcut ? shortcut->forward(x) : x));
  }
  std::shared_ptr<NormedConv> first, second, shortcut;
};

struct ResNet : torch::nn::Module {
  /// Each batch norm normalises by the samples of the ranks of `group`.
  ResNet(const ResNetConfig& config, std::int64_t classes, const ddpxx::Group& group)
      : stem{register_module("stem", std::make_shared<NormedConv>(3, config.width, 3, 1, group))},
        head{register_module("head", torch::nn::Linear{4 * config.width, classes})} {
    auto in = config.width;
    for (const std::int64_t out : {config.width, 2 * config.width, 4 * config.width})
      for (std::int64_t i = 0; i < config.blocks; ++i, in = out)
        blocks.push_back(register_module("block" + std::to_string(blocks.size()),
                                         std::make_shared<Block>(in, out, in == out ? 1 : 2, group)));
  }
  template <class Run>
  ddpxx::Loss forward(Run& run, const ddpxx::Batch& batch) {
    const auto x = run(blocks, at::relu(stem->forward(batch.inputs)));
    const auto logits = head(x.mean({2, 3}));
    return {at::cross_entropy_loss(logits, batch.targets, {}, at::Reduction::Sum),
            {{"accuracy", logits.argmax(1).eq(batch.targets).sum()}}};
  }
  std::shared_ptr<NormedConv> stem;
  std::vector<std::shared_ptr<Block>> blocks;
  torch::nn::Linear head;
};
