// data_parallel.cpp — DataParallel: one process copies the model to each device in every step, and its threads compute
// the parts of each batch at the same time.
//
//     data_parallel                        # a copy for each GPU
//     data_parallel strategy.replicas=2    # on a CPU
//
// On a CPU the copies are computed one after the other. ddp.cpp does the same work with a process for each device: it
// copies no parameters, its processes do not wait for one thread, and it can use several machines.
#include <memory>
#include <ostream>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>

#include <ddpxx/ddpxx.hpp>

#include "datautils.hpp"
#include "epoch_loss.hpp"

/// ToyModel in the form that LibTorch can copy to another device.
struct CopiedModel : torch::nn::Cloneable<CopiedModel> {
  CopiedModel() { CopiedModel::reset(); }
  void reset() override { net = register_module("net", torch::nn::Linear{20, 1}); }
  ddpxx::Loss forward(const ddpxx::Batch& batch) {
    return {at::mse_loss(net(batch.inputs), batch.targets, at::Reduction::Sum)};
  }
  torch::nn::Linear net{nullptr};
};

using Train = ddpxx::Trainer<CopiedModel, MyTrainDataset, ddpxx::Adam, ddpxx::Float32, ddpxx::DataParallel>;

struct Config {
  Train::Config train{.batch_size = 64,  // of all copies together
                      .num_workers = 4,
                      .training = {.max_epochs = 10, .grad_norm_clip = 0.0}};
  static constexpr auto describe() { return ddpxx::fields(ddpxx::flatten<&Config::train>()); }
};

int main(int argc, char** argv) {
  ddpxx::run_program("data_parallel", [&] {
    const auto [config, record] = ddpxx::parse_recorded<Config>(argc, argv);
    const auto& training = config.train.training;
    auto group = ddpxx::join(ddpxx::torchrun_environment(), training.device);
    auto model = ddpxx::make_model<CopiedModel>(training.seed, group.device());
    auto dataset = std::make_shared<const MyTrainDataset>(2048);
    std::ostream silent{nullptr};
    Train trainer{group, model, dataset, config.train, record, {.screen = &silent}};
    if (group.rank() == 0) trainer.add(std::make_shared<EpochLoss>());
    trainer.fit();
    group.leave();
  });
}
