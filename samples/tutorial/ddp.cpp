// ddp.cpp — DistributedDataParallel: one process for each device. Each process holds the whole model and computes a
// part of each batch, and the gradients are averaged while backward runs.
//
//     ddpxx-run --standalone --nproc-per-node=2 ddp
//
// The dataset, the seed and the samples of a step are those of data_parallel.cpp, so the losses are equal but for
// rounding.
#include <memory>
#include <ostream>

#include <ddpxx/ddpxx.hpp>

#include "datautils.hpp"
#include "epoch_loss.hpp"

using Train = ddpxx::Trainer<ToyModel, MyTrainDataset, ddpxx::Adam, ddpxx::Float32, ddpxx::DDP>;

struct Config {
  Train::Config train{.batch_size = 32,  // of each process
                      .num_workers = 4,
                      .training = {.max_epochs = 10, .grad_norm_clip = 0.0}};
  static constexpr auto describe() { return ddpxx::fields(ddpxx::flatten<&Config::train>()); }
};

int main(int argc, char** argv) {
  ddpxx::run_program("ddp", [&] {
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
