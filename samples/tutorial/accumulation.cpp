// accumulation.cpp — gradient accumulation: four batches for each optimizer step, for batches that would not fit at
// once.
//
//     ddpxx-run --standalone --nproc-per-node=2 accumulation
//     ddpxx-run --standalone --nproc-per-node=2 accumulation batch_size=32 training.accumulation_steps=1
//
// Both commands take steps of equal samples, and so have equal losses but for rounding. The gradients are averaged over
// the ranks once a step, in the backward pass of the last batch. The last step of an epoch takes what is left.
#include <memory>
#include <ostream>

#include <ddpxx/ddpxx.hpp>

#include "datautils.hpp"
#include "epoch_loss.hpp"

using Train = ddpxx::Trainer<ToyModel, MyTrainDataset, ddpxx::Adam, ddpxx::Float32, ddpxx::DDP>;

struct Config {
  Train::Config train{.batch_size = 8, .training = {.max_epochs = 10, .grad_norm_clip = 0.0, .accumulation_steps = 4}};
  static constexpr auto describe() { return ddpxx::fields(ddpxx::flatten<&Config::train>()); }
};

int main(int argc, char** argv) {
  ddpxx::run_program("accumulation", [&] {
    const auto [config, record] = ddpxx::parse_recorded<Config>(argc, argv);
    const auto& training = config.train.training;
    auto group = ddpxx::join(ddpxx::torchrun_environment(), training.device);
    auto model = ddpxx::make_model<ToyModel>(training.seed, group.device());
    auto dataset = std::make_shared<const MyTrainDataset>(2048);
    std::ostream silent{nullptr};
    Train trainer{group, model, dataset, config.train, record, {.screen = &silent}};
    if (group.rank() == 0) trainer.add(std::make_shared<EpochLoss>());
    trainer.fit();
    group.leave();
  });
}
