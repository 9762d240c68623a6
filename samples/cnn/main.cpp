// main.cpp — a residual network that learns to tell images apart: CIFAR-10, or images that it makes.
//
//     cnn
//     ddpxx-run --standalone --nproc-per-node=2 cnn data.path=cifar-10-batches-bin sync_batch_norm=true
#include <cstdint>
#include <memory>

#include <ddpxx/ddpxx.hpp>

#include "images.hpp"
#include "resnet.hpp"

// Another strategy or precision is another type here, such as ddpxx::FSDP or ddpxx::AutocastBF16.
using Train = ddpxx::Trainer<ResNet, Images, ddpxx::SGD, ddpxx::Float32, ddpxx::DDP>;

struct Config {
  ImagesConfig data;
  ResNetConfig model;
  bool sync_batch_norm = false;
  Train::Config train{.batch_size = 64,
                      .training = {.max_epochs = 10, .eval_every = 100},
                      .optimizer = {.learning_rate = 0.05, .weight_decay = 5e-4, .momentum = 0.9, .nesterov = true}};

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(
        field<&Config::model>("The network", Resume::must_match),
        field<&Config::sync_batch_norm>(
            "Normalise by the samples of all ranks, so that a run does not depend on how many ranks share a batch",
            Resume::must_match),
        flatten<&Config::train>());
  }
};

int main(int argc, char** argv) {
  ddpxx::run_program("cnn", [&] {
    const auto [config, record] = ddpxx::parse_recorded<Config>(argc, argv);
    const auto& training = config.train.training;
    auto group = ddpxx::join(ddpxx::torchrun_environment(), training.device);
    const auto images = [&](Part part) {
      return ddpxx::on_every_rank(group, ddpxx::Errc::data,
                                  [&] { return std::make_shared<const Images>(config.data, part); });
    };
    const auto train = images(Part::train), test = images(Part::test);
    const ddpxx::Group alone;
    auto net = ddpxx::make_model<ResNet>(training.seed, group.device(), config.model, kClasses,
                                         config.sync_batch_norm ? group : alone);
    Train trainer{group, net, train, config.train, record, {.validation = test}};
    trainer.fit();
    group.leave();
  });
}
