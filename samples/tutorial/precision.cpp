// precision.cpp — mixed precision: the forward pass runs in float16 where that is safe, under a scaled loss.
//
//     ddpxx-run --standalone --nproc-per-node=2 precision
//     precision precision.scaler.initial_scale=1e9      # too large: steps are skipped, and the scale falls
//
// What torch.autocast and GradScaler do in five lines of a loop, the type AutocastFP16 does inside of a step: scale the
// loss, backward, unscale, skip the step if a gradient is not finite, update the scale. bfloat16 has the range of
// float32 and needs no scale: AutocastBF16.
#include <memory>
#include <ostream>

#include <ddpxx/ddpxx.hpp>

#include "datautils.hpp"
#include "epoch_loss.hpp"

using Train = ddpxx::Trainer<ToyModel, MyTrainDataset, ddpxx::Adam, ddpxx::AutocastFP16, ddpxx::DDP>;

struct Config {
  Train::Config train{.batch_size = 32, .training = {.max_epochs = 10, .grad_norm_clip = 0.0}};
  static constexpr auto describe() { return ddpxx::fields(ddpxx::flatten<&Config::train>()); }
};

int main(int argc, char** argv) {
  ddpxx::run_program("precision", [&] {
    const auto [config, record] = ddpxx::parse_recorded<Config>(argc, argv);
    const auto& training = config.train.training;
    auto group = ddpxx::join(ddpxx::torchrun_environment(), training.device);
    auto model = ddpxx::make_model<ToyModel>(training.seed, group.device());
    auto dataset = std::make_shared<const MyTrainDataset>(2048);
    std::ostream silent{nullptr};
    Train trainer{group, model, dataset, config.train, record, {.screen = &silent}};
    if (group.rank() == 0) trainer.add(std::make_shared<EpochLoss>());
    trainer.fit();
    group.leave();
  });
}
