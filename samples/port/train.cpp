// train.cpp — train.py in C++.
//
//     ddpxx-run --standalone --nproc-per-node 2 port --epochs 10 --batch-size 32
#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include <torch/nn/modules/linear.h>

#include <ddpxx/ddpxx.hpp>

class Spirals {
 public:
  explicit Spirals(std::int64_t size) {
    auto generator = at::detail::createCPUGenerator(/*seed_val=*/0);
    labels_ = at::arange(size) % 3;
    const auto radius = at::rand({size}, generator);
    const auto angle = 4 * radius + 2.1 * labels_ + 0.3 * at::rand({size}, generator);
    points_ = at::stack({radius * angle.cos(), radius * angle.sin()}, 1);
  }

  std::int64_t size() const { return labels_.size(0); }

  ddpxx::Batch batch(std::span<const std::int64_t> indices) const {
    const auto rows = at::tensor(at::ArrayRef<std::int64_t>{indices.data(), indices.size()});
    return {points_.index_select(0, rows), labels_.index_select(0, rows), rows.numel()};
  }

 private:
  at::Tensor points_, labels_;
};

struct Net : torch::nn::Module {
  explicit Net(std::int64_t width)
      : fc1{register_module("fc1", torch::nn::Linear(2, width))},
        fc2{register_module("fc2", torch::nn::Linear(width, 3))} {}

  ddpxx::Loss forward(const ddpxx::Batch& batch) {
    const auto logits = fc2(at::relu(fc1(batch.inputs)));
    return {at::cross_entropy_loss(logits, batch.targets, {}, at::Reduction::Sum)};
  }

  torch::nn::Linear fc1, fc2;
};

using Train = ddpxx::Trainer<Net, Spirals, ddpxx::Adam, ddpxx::Float32, ddpxx::DDP>;

struct Config {
  std::int64_t width = 64;
  Train::Config train{.batch_size = 32,
                      .training = {.max_epochs = 10,
                                   .seed = 1337,
                                   .grad_norm_clip = 1.0,
                                   .save_dir = "checkpoint",
                                   .save_every_epochs = 1},
                      .optimizer = {.learning_rate = 1e-2}};

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(field<&Config::width>("Width of the hidden layer", at_least(1), Resume::must_match),
                  flatten<&Config::train>());
  }
  static constexpr auto aliases() {
    return std::array{ddpxx::Alias{"epochs", "training.max_epochs"}, ddpxx::Alias{"lr", "optimizer.learning_rate"}};
  }
};

int main(int argc, char** argv) {
  ddpxx::run_program("port", [&] {
    const auto [config, record] = ddpxx::parse_recorded<Config>(argc, argv);
    const auto& training = config.train.training;
    auto group = ddpxx::join(ddpxx::torchrun_environment(), training.device);
    auto net = ddpxx::make_model<Net>(training.seed, group.device(), config.width);
    Train trainer{group, net, std::make_shared<const Spirals>(4096), config.train, record};
    trainer.fit();
    group.leave();
  });
}
