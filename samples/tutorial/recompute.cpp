// recompute.cpp — activation checkpointing: backward computes the activations of layers again instead of keeping them.
//
//     ddpxx-run --standalone --nproc-per-node=2 recompute
//     ddpxx-run --standalone --nproc-per-node=2 recompute strategy.recompute.policy=none
//
// Both commands have equal losses to the last digit. The policy `segments` with a count is torch.utils.checkpoint's
// checkpoint_sequential: only what goes from one segment of layers to the next is kept.
#include <cstdio>
#include <memory>
#include <ostream>

#include <ddpxx/ddpxx.hpp>
#include <ddpxx/flat/live_bytes.hpp>

#include "deep_model.hpp"
#include "epoch_loss.hpp"

using Train = ddpxx::Trainer<DeepModel, MyTrainDataset, ddpxx::Adam, ddpxx::Float32, ddpxx::Recompute<ddpxx::DDP>>;

struct Config {
  DeepModelConfig model;
  Train::Config train{.batch_size = 128,
                      .training = {.max_epochs = 10, .grad_norm_clip = 0.0},
                      .strategy = {.recompute = {.policy = ddpxx::RecomputeConfig::Policy::segments, .count = 4}}};
  static constexpr auto describe() { return ddpxx::fields(ddpxx::flatten<&Config::train>()); }
};

int main(int argc, char** argv) {
  ddpxx::run_program("recompute", [&] {
    const auto [config, record] = ddpxx::parse_recorded<Config>(argc, argv);
    const auto& training = config.train.training;
    auto group = ddpxx::join(ddpxx::torchrun_environment(), training.device);
    const ddpxx::LiveBytes live;  // counts the bytes of tensors
    auto model = ddpxx::make_model<DeepModel>(training.seed, group.device(), config.model);
    auto dataset = std::make_shared<const MyTrainDataset>(2048);
    std::ostream silent{nullptr};
    Train trainer{group, model, dataset, config.train, record, {.screen = &silent}};
    if (group.rank() == 0) trainer.add(std::make_shared<EpochLoss>());
    const auto states = live.current();
    trainer.fit();
    if (group.rank() == 0) std::printf("a step takes %lld bytes\n", static_cast<long long>(live.peak() - states));
    group.leave();
  });
}
