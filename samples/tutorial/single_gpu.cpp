// single_gpu.cpp — chapter 1: one process trains on one GPU, or on the CPU where there is none.
//
//     single_gpu 50 10 --batch_size 32
//
// checkpoint.pt is the file of the original: Python's torch.load reads it as a state_dict.
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

using Train = ddpxx::Trainer<ToyModel, MyTrainDataset, ddpxx::SGD, ddpxx::Float32, ddpxx::SingleDevice>;

void run_epoch(Train& trainer, std::int64_t epoch, std::int64_t batch_size) {
  std::cout << "[GPU0] Epoch " << epoch << " | Batchsize: " << batch_size << " | Steps: " << trainer.steps_per_epoch()
            << std::endl;
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
  ddpxx::run_program("single_gpu", [&] {
    const auto [config, record] = ddpxx::parse_recorded<Arguments<Train>>(argc, argv);
    const auto& training = config.train.training;
    auto group = ddpxx::join(ddpxx::torchrun_environment(), training.device);
    auto model = ddpxx::make_model<ToyModel>(training.seed, group.device());
    auto dataset = std::make_shared<const MyTrainDataset>(2048);
    std::ostream silent{nullptr};  // instead of the trainer's own lines, those of the tutorial
    Train trainer{group, model, dataset, config.train, record, {.screen = &silent}};
    trainer.fit([&] {
      while (!trainer.finished()) {
        const auto epoch = trainer.epoch();
        run_epoch(trainer, epoch, config.train.batch_size);
        if (trainer.epoch() != epoch && epoch % config.save_every == 0) save_checkpoint(trainer, epoch);
      }
    });
    group.leave();
  });
}
