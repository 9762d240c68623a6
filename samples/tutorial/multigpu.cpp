// multigpu.cpp — chapter 2: one process for each device, started from inside of the program, as mp.spawn does.
//
//     multigpu 50 10 spawn=gpu                  # a process for each GPU of this machine
//     multigpu 50 10 --batch_size 32 spawn=2    # two processes
//
// The argument spawn=N belongs to run_program: the process becomes the launcher of N ranks of this program. Every rank
// trains on its part of the data, and one of them saves.
#include <cstdint>
#include <iostream>
#include <memory>

#include <ddpxx/ddpxx.hpp>
#include <ddpxx/interop/pt_file.hpp>
#include <ddpxx/interop/state_dicts.hpp>
#include <ddpxx/interop/torch_state.hpp>

#include "arguments.hpp"
#include "datautils.hpp"

namespace {

using Train = ddpxx::Trainer<ToyModel, MyTrainDataset, ddpxx::SGD, ddpxx::Float32, ddpxx::DDP>;

void run_epoch(Train& trainer, int gpu_id, std::int64_t epoch, std::int64_t batch_size) {
  std::cout << "[GPU" << gpu_id << "] Epoch " << epoch << " | Batchsize: " << batch_size
            << " | Steps: " << trainer.steps_per_epoch() << std::endl;
  while (!trainer.finished() && trainer.epoch() == epoch) {
    trainer.step();
    if (trainer.save_due()) trainer.save();
  }
}

void save_checkpoint(Train& trainer, std::int64_t epoch) {
  ddpxx::write_pt("checkpoint.pt", ddpxx::to_python({.layout = ddpxx::CheckpointLayout::state_dict,
                                                     .model = ddpxx::state_dict(trainer.model())}));
  std::cout << "Epoch " << epoch << " | Training checkpoint saved at checkpoint.pt" << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  ddpxx::run_program("multigpu", [&] {
    const auto [config, record] = ddpxx::parse_recorded<Arguments<Train>>(argc, argv);
    const auto& training = config.train.training;
    const auto launch = ddpxx::torchrun_environment();
    const int gpu_id = launch ? launch->rank_info.local_rank.value : 0;
    auto group = ddpxx::join(launch, training.device);
    auto model = ddpxx::make_model<ToyModel>(training.seed, group.device());
    auto dataset = std::make_shared<const MyTrainDataset>(2048);
    std::ostream silent{nullptr};  // instead of the trainer's own lines, those of the tutorial
    Train trainer{group, model, dataset, config.train, record, {.screen = &silent}};
    trainer.fit([&] {
      while (!trainer.finished()) {
        const auto epoch = trainer.epoch();
        run_epoch(trainer, gpu_id, epoch, config.train.batch_size);
        if (trainer.epoch() != epoch && group.rank() == 0 && epoch % config.save_every == 0)
          save_checkpoint(trainer, epoch);
      }
    });
    group.leave();
  });
}
