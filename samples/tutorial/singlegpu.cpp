// singlegpu.cpp — the first program of the step-by-step guide: chapter 1 with a network and an argument of your own.
//
//     singlegpu --total_epochs 50 --save_every 10 --batch_size 32 --hidden_size 64
//
// checkpoint.pt is a state_dict for a Python module with the layers fc1 and fc2.
#include <cstdint>
#include <iostream>
#include <memory>

#include <torch/nn/modules/linear.h>

#include <ddpxx/ddpxx.hpp>
#include <ddpxx/interop/pt_file.hpp>
#include <ddpxx/interop/state_dicts.hpp>
#include <ddpxx/interop/torch_state.hpp>

#include "arguments.hpp"
#include "datautils.hpp"

namespace {

/// A multilayer perceptron with one hidden layer.
struct MLP : torch::nn::Module {
  explicit MLP(std::int64_t hidden_size)
      : fc1{register_module("fc1", torch::nn::Linear{20, hidden_size})},
        fc2{register_module("fc2", torch::nn::Linear{hidden_size, 1})} {}
  ddpxx::Loss forward(const ddpxx::Batch& batch) {
    return {at::mse_loss(fc2(at::relu(fc1(batch.inputs))), batch.targets, at::Reduction::Sum)};
  }
  torch::nn::Linear fc1, fc2;
};

using Train = ddpxx::Trainer<MLP, MyTrainDataset, ddpxx::SGD, ddpxx::Float32, ddpxx::SingleDevice>;

struct Config {
  std::int64_t hidden_size = 64;
  Arguments<Train> common;

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(field<&Config::hidden_size>("Width of the hidden layer", at_least(1), Resume::must_match),
                  flatten<&Config::common>());
  }
  static constexpr auto positionals() { return Arguments<Train>::positionals(); }
  static constexpr auto aliases() { return Arguments<Train>::aliases(); }
};

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
  ddpxx::run_program("singlegpu", [&] {
    const auto [config, record] = ddpxx::parse_recorded<Config>(argc, argv);
    const auto& training = config.common.train.training;
    auto group = ddpxx::join(ddpxx::torchrun_environment(), training.device);
    auto model = ddpxx::make_model<MLP>(training.seed, group.device(), config.hidden_size);
    auto dataset = std::make_shared<const MyTrainDataset>(2048);
    std::ostream silent{nullptr};  // instead of the trainer's own lines, those of the tutorial
    Train trainer{group, model, dataset, config.common.train, record, {.screen = &silent}};
    trainer.fit([&] {
      while (!trainer.finished()) {
        const auto epoch = trainer.epoch();
        run_epoch(trainer, epoch, config.common.train.batch_size);
        if (trainer.epoch() != epoch && epoch % config.common.save_every == 0) save_checkpoint(trainer, epoch);
      }
    });
    group.leave();
  });
}
