// A short training run on rows of numbers; it returns the losses and the snapshot of its end.
#pragma once

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include <ddpxx/optim/sgd.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../rows.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx {

struct RowsCourse {
  std::vector<double> losses;
  Snapshot snapshot;
};

/// `make_network(group)` returns the model, whose initial weights are the same in each run.
template <class S, class MakeNetwork>
RowsCourse train_on_rows(int world_size, const MakeNetwork& make_network, const typename S::Config& strategy = {}) {
  const TemporaryFolder folder;
  spawn_ranks(world_size, [&](Group& group) {
    at::manual_seed(3);
    const auto network = make_network(group);
    using Train = Trainer<typename decltype(network)::element_type, Rows, SGD, Float32, S>;
    typename Train::Config config;
    config.batch_size = 8 / group.size();
    config.training = {.max_steps = 8,
                       .max_epochs = 0,
                       .seed = 5,
                       .accumulation_steps = 2,
                       .save_dir = (folder / "run").string(),
                       .eval_every = 4,
                       .metrics = (folder / "metrics.jsonl").string()};
    config.optimizer.learning_rate = 1e-2;
    config.strategy = strategy;
    Train{group, network, std::make_shared<const Rows>(), config, {}, {.validation = std::make_shared<const Rows>()}}
        .fit();
  });
  RowsCourse course{{}, load_snapshot(folder / "run").value()};
  std::ifstream file{folder / "metrics.jsonl"};
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    for (const char* key : {"loss", "val_loss"})
      if (row.contains(key)) course.losses.push_back(row[key]);
  }
  return course;
}

}  // namespace ddpxx
