// multigpu_torchrun.cpp — chapter 3: a launcher starts the processes, and starts them again after a failure.
//
//     ddpxx-run --standalone --nproc-per-node=gpu multigpu_torchrun 50 10
//     ddpxx-run --standalone --nproc-per-node=2 --max-restarts=3 multigpu_torchrun --total_epochs 50 --save_every 10
//
// Snapshots are folders of ddpxx in training.save_dir, by default ./snapshots, instead of the original's one file
// snapshot.pt: they also hold the optimizer and the place in the data, and a process that is killed while it saves
// leaves the snapshot before intact. `ddpxx snapshot convert snapshots to=snapshot.pt layout=torchrun_tutorial` writes
// that file for Python.
#include <cstdint>
#include <iostream>
#include <memory>

#include <ddpxx/ddpxx.hpp>

#include "arguments.hpp"
#include "datautils.hpp"

namespace {

using Train = ddpxx::Trainer<ToyModel, MyTrainDataset, ddpxx::SGD, ddpxx::Float32, ddpxx::DDP>;

/// Says where a run begins that resumes from a snapshot: fit() has loaded the newest one. A snapshot that was converted
/// from the original's snapshot.pt has the number of epochs, but not that of steps.
void report_resumption(const Train& trainer, const ddpxx::Group& group) {
  const bool is_new = trainer.steps_done() == 0 && trainer.epoch() == 0;
  if (is_new || group.rank() != 0) return;
  std::cout << "Loading snapshot\nResuming training from snapshot at Epoch " << trainer.epoch() << std::endl;
}

void run_epoch(Train& trainer, int gpu_id, std::int64_t epoch, std::int64_t batch_size) {
  std::cout << "[GPU" << gpu_id << "] Epoch " << epoch << " | Batchsize: " << batch_size
            << " | Steps: " << trainer.steps_per_epoch() << std::endl;
  while (!trainer.finished() && trainer.epoch() == epoch) {
    trainer.step();
    if (trainer.save_due()) trainer.save();
  }
}

/// Every rank calls it: each of them writes its part of the snapshot.
void save_snapshot(Train& trainer, const ddpxx::Group& group, std::int64_t epoch, const std::string& path) {
  if (!trainer.is_saved()) trainer.save();
  if (group.rank() == 0) std::cout << "Epoch " << epoch << " | Training snapshot saved at " << path << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  ddpxx::run_program("multigpu_torchrun", [&] {
    const auto [config, record] = ddpxx::parse_recorded<Arguments<Train, /*kResumes=*/true>>(argc, argv);
    const auto& training = config.train.training;
    const auto launch = ddpxx::torchrun_environment();
    const int gpu_id = launch ? launch->rank_info.local_rank.value : 0;
    auto group = ddpxx::join(launch, training.device);
    auto model = ddpxx::make_model<ToyModel>(training.seed, group.device());
    auto dataset = std::make_shared<const MyTrainDataset>(2048);
    std::ostream silent{nullptr};
    Train trainer{group, model, dataset, config.train, record, {.screen = &silent}};
    trainer.fit([&] {
      report_resumption(trainer, group);
      while (!trainer.finished()) {
        const auto epoch = trainer.epoch();
        run_epoch(trainer, gpu_id, epoch, config.train.batch_size);
        if (epoch % config.save_every == 0) save_snapshot(trainer, group, epoch, training.save_dir);
      }
    });
    group.leave();
  });
}
