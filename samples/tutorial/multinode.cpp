// multinode.cpp — chapter 4: several machines. The ranks of all machines train together, and print their numbers among
// all ranks.
//
// Run this on each of two machines, with the address of the first one, which is node 0.
//
//     ddpxx-run --nproc-per-node=8 --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=172.31.43.139:29603 multinode 50 10
//
// Each rank writes its part of a snapshot, so training.save_dir has to be a place that all machines reach: a shared
// folder, or s3://bucket/prefix.
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

void run_epoch(Train& trainer, const ddpxx::Group& group, std::int64_t epoch, std::int64_t batch_size) {
  std::cout << "[GPU" << group.rank() << "] Epoch " << epoch << " | Batchsize: " << batch_size
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
  ddpxx::run_program("multinode", [&] {
    const auto [config, record] = ddpxx::parse_recorded<Arguments<Train, /*kResumes=*/true>>(argc, argv);
    const auto& training = config.train.training;
    auto group = ddpxx::join(ddpxx::torchrun_environment(), training.device);  // takes the GPU of the local rank
    auto model = ddpxx::make_model<ToyModel>(training.seed, group.device());
    auto dataset = std::make_shared<const MyTrainDataset>(2048);
    std::ostream silent{nullptr};
    Train trainer{group, model, dataset, config.train, record, {.screen = &silent}};
    trainer.fit([&] {
      report_resumption(trainer, group);
      while (!trainer.finished()) {
        const auto epoch = trainer.epoch();
        run_epoch(trainer, group, epoch, config.train.batch_size);
        if (epoch % config.save_every == 0) save_snapshot(trainer, group, epoch, training.save_dir);
      }
    });
    group.leave();
  });
}
