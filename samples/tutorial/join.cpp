// join.cpp — uneven inputs: a rank that has run out of batches takes part in the steps of the others with gradients of
// zeros, until all are done.
//
//     ddpxx-run --standalone --nproc-per-node=2 join
//
// A Trainer gives all ranks equal numbers of batches, so this is a loop without one: rank r has r more batches than
// rank 0.
#include <cstdint>
#include <iostream>
#include <numeric>
#include <vector>

#include <ddpxx/ddpxx.hpp>

#include "datautils.hpp"

namespace {

constexpr std::int64_t kBatchSize = 32;

struct Config {
  std::int64_t num_inputs = 5;
  ddpxx::SGDConfig optimizer{.learning_rate = 0.01};

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(field<&Config::num_inputs>("Batches of rank 0; rank r has r more", at_least(1)));
  }
};

/// The batches of this rank, which share no sample with those of another rank.
std::vector<ddpxx::Batch> make_batches(const Config& config, const ddpxx::Group& group) {
  const MyTrainDataset dataset{(config.num_inputs + group.size()) * group.size() * kBatchSize};
  std::vector<ddpxx::Batch> batches;
  std::vector<std::int64_t> indices(kBatchSize);
  for (std::int64_t i = 0; i < config.num_inputs + group.rank(); ++i) {
    std::iota(indices.begin(), indices.end(), (i * group.size() + group.rank()) * kBatchSize);
    batches.push_back(dataset.batch(indices).to(group.device()));
  }
  return batches;
}

}  // namespace

int main(int argc, char** argv) {
  ddpxx::run_program("join", [&] {
    const auto config = ddpxx::parse_config<Config>(argc, argv);
    auto group = ddpxx::join(ddpxx::torchrun_environment(), "auto");
    auto model = ddpxx::make_model<ToyModel>(/*seed=*/0, group.device());
    ddpxx::FlatModel parameters{*model};
    ddpxx::DDP ddp{{}, group};
    ddp.attach(parameters);
    ddpxx::SGD optimizer{config.optimizer, ddp.slices()};
    const auto batches = make_batches(config, group);

    ddpxx::Join join{ddp};
    for (const auto& batch : batches) {
      join.step();
      ddp.begin_backward(ddpxx::Sync::now);
      (model->forward(batch).sum / batch.num_tokens).backward();
      ddp.finish_backward();
      optimizer.step(config.optimizer.learning_rate);
      ddp.finish_step();
    }
    std::int64_t shadowed = 0;
    for (; join.shadow(); ++shadowed) {  // with the steps of its optimizer, every rank ends with an equal model
      optimizer.step(config.optimizer.learning_rate);
      ddp.finish_step();
    }
    std::cout << "Rank " << group.rank() << " has exhausted all " << batches.size()
              << " of its inputs, and took part in " << shadowed << " more steps; its model adds up to "
              << model->net->weight.sum().item<double>() << std::endl;
    group.leave();
  });
}
