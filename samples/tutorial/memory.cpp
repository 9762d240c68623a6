// memory.cpp — what a rank's memory is used for: planned before the run, and measured in it.
//
//     ddpxx-run --standalone --nproc-per-node=2 memory --layers 16 --width 256 --batch_size 64
//
// The plan starts no process and sends nothing: it tries small models, and extrapolates their bytes to the real size.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <vector>

#include <ddpxx/ddpxx.hpp>
#include <ddpxx/flat/live_bytes.hpp>
#include <ddpxx/train/memory_plan.hpp>

#include "deep_model.hpp"

namespace {

using Strategy = ddpxx::DDP;
using Optimizer = ddpxx::Adam;

struct Config {
  DeepModelConfig model;
  std::int64_t batch_size = 32;

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(flatten<&Config::model>(), field<&Config::batch_size>("Samples of each rank", at_least(1)));
  }
};

ddpxx::Batch make_batch(std::int64_t samples) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(samples));
  std::iota(indices.begin(), indices.end(), 0);
  return MyTrainDataset{samples}.batch(indices);
}

ddpxx::MemoryPlan plan(const Config& config, const ddpxx::Group& group) {
  const ddpxx::PlannedRun<Strategy, ddpxx::Float32, Optimizer> run{
      .world_size = group.size(), .layers = config.model.layers, .batch_size = config.batch_size};
  const auto make_model = [&](std::int64_t layers) {
    return ddpxx::make_model<DeepModel>(/*seed=*/0, group.device(), DeepModelConfig{layers, config.model.width});
  };
  return ddpxx::plan_memory(run, make_model, make_batch);
}

/// Two steps without a Trainer, to see what each part adds. The first step fills buffers that later steps use again.
ddpxx::MemoryPlan measure(const Config& config, ddpxx::Group& group) {
  ddpxx::MemoryPlan measured;
  ddpxx::LiveBytes live;
  auto model = ddpxx::make_model<DeepModel>(/*seed=*/0, group.device(), config.model);
  ddpxx::FlatModel parameters{*model};
  Strategy strategy{{}, group};
  strategy.attach(parameters);
  measured.gradients = static_cast<std::int64_t>(strategy.trainable().gradients().nbytes());
  measured.parameters = live.current() - measured.gradients;
  Optimizer optimizer{{}, strategy.slices()};
  measured.optimizer = live.current() - measured.parameters - measured.gradients;
  const auto batch = make_batch(config.batch_size).to(group.device());
  measured.inputs = live.current() - measured.states();
  const auto before = live.current();
  for (int step = 0; step < 2; ++step) {
    live.reset_peak();
    strategy.begin_backward(ddpxx::Sync::now);
    auto run = strategy.runner();
    const auto held = live.current();
    const auto loss = model->forward(run, batch).sum;
    measured.activations = live.current() - held;  // what forward keeps for backward
    loss.backward();
    strategy.finish_backward();
    optimizer.step(/*learning_rate=*/1e-3);
    strategy.finish_step();
  }
  measured.buckets = live.peak() + live.peak_elsewhere() - before - measured.activations;
  return measured;
}

void print_row(const char* what, std::int64_t planned, std::int64_t measured) {
  std::printf("%-12s %14lld %14lld\n", what, static_cast<long long>(planned), static_cast<long long>(measured));
}

}  // namespace

int main(int argc, char** argv) {
  ddpxx::run_program("memory", [&] {
    const auto config = ddpxx::parse_config<Config>(argc, argv);
    auto group = ddpxx::join(ddpxx::torchrun_environment(), "auto");
    const auto planned = plan(config, group);
    const auto measured = measure(config, group);
    if (group.rank() == 0) {
      std::printf("bytes               planned       measured\n");
      print_row("weights", planned.parameters, measured.parameters);
      print_row("gradients", planned.gradients, measured.gradients);
      print_row("optimizer", planned.optimizer, measured.optimizer);
      print_row("activations", planned.activations, measured.activations);
      print_row("batches", planned.inputs, measured.inputs);
      print_row("buffers", planned.buckets, measured.buckets);
      print_row("a rank", planned.total(), measured.total());
    }
    group.leave();
  });
}
