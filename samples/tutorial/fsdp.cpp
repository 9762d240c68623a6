// fsdp.cpp — FullyShardedDataParallel: each rank keeps a part of the parameters, gradients and optimizer state, and
// gathers the parameters of a layer only while the layer is computed.
//
//     ddpxx-run --standalone --nproc-per-node=2 fsdp
//     fsdp batch_size=64                                  # one rank, which keeps everything, with equal losses
//
// The parts and the optimizer state stay in the memory of the CPU (offload), so that a GPU holds only the layers that
// it computes. The losses are those of DDP.
#include <memory>
#include <ostream>

#include <ddpxx/ddpxx.hpp>

#include "deep_model.hpp"
#include "epoch_loss.hpp"

using Train = ddpxx::Trainer<DeepModel, MyTrainDataset, ddpxx::Adam, ddpxx::Float32, ddpxx::FSDP>;

struct Config {
  DeepModelConfig model;
  Train::Config train{.batch_size = 32,
                      .training = {.max_epochs = 10, .grad_norm_clip = 0.0},
                      .strategy = {.offload = ddpxx::Offload::cpu}};
  static constexpr auto describe() { return ddpxx::fields(ddpxx::flatten<&Config::train>()); }
};

int main(int argc, char** argv) {
  ddpxx::run_program("fsdp", [&] {
    const auto [config, record] = ddpxx::parse_recorded<Config>(argc, argv);
    const auto& training = config.train.training;
    auto group = ddpxx::join(ddpxx::torchrun_environment(), training.device);
    auto model = ddpxx::make_model<DeepModel>(training.seed, group.device(), config.model);
    auto dataset = std::make_shared<const MyTrainDataset>(2048);
    std::ostream silent{nullptr};
    Train trainer{group, model, dataset, config.train, record, {.screen = &silent}};
    if (group.rank() == 0) trainer.add(std::make_shared<EpochLoss>());
    trainer.fit();
    group.leave();
  });
}
