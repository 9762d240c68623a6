// step_instructions — takes steps of small GPTs in a group of any number of ranks, of which this process is one and the
// others are assumed. `./dev bench instructions` runs it in valgrind, which counts the instructions of each call of
// `measured_steps`. Since the tensors are small, the host's own work is a large part of them.
//
//   step_instructions STEPS [STRATEGY LAYERS TOKENS RANKS]...     STRATEGY is ddp or fsdp
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>

#include <ddpxx/comm/recording.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/launch/program.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/train/train_step.hpp>

namespace {

constexpr int kWarmUp = 4;
constexpr std::int64_t kVocabulary = 17;

struct Sizes {
  std::int64_t layers = 0, tokens = 0;
  int ranks = 0;
};

}  // namespace

/// Calls `step` several times. Valgrind finds this function by its name.
extern "C" __attribute__((noinline)) void measured_steps(int steps, void (*step)(void*), void* context) {
  for (int i = 0; i < steps; ++i) step(context);
}

namespace {

template <class Strategy>
void run(const Sizes& sizes, int steps) {
  auto group = ddpxx::recording_group(0, sizes.ranks, std::make_shared<ddpxx::Recording>());
  {
    auto model = std::make_shared<ddpxx::GPT>(
        ddpxx::GPTConfig{.n_layer = sizes.layers, .n_head = 2, .n_embd = 64, .dropout = 0.0, .fused = true},
        kVocabulary, sizes.tokens);
    ddpxx::TrainStep<ddpxx::GPT, ddpxx::AdamW, ddpxx::Float32, Strategy> train_step{group, model, {}};
    const auto ids = at::arange(sizes.tokens, at::kLong).view({1, sizes.tokens}) % kVocabulary;
    const ddpxx::Batch batch{ids, ids, ids.numel()};
    auto step = [&] { train_step.step(std::span{&batch, 1}); };
    for (int i = 0; i < kWarmUp; ++i) step();
    measured_steps(
        steps, [](void* context) { (*static_cast<decltype(step)*>(context))(); }, &step);
  }
  group.leave();
}

}  // namespace

int main(int argc, char** argv) {
  ddpxx::run_program("step_instructions", [&] {
    if (argc % 4 != 2)
      throw ddpxx::Error{ddpxx::Errc::config, "usage: step_instructions STEPS [STRATEGY LAYERS TOKENS RANKS]..."};
    const int steps = std::atoi(argv[1]);
    at::set_num_threads(1);
    for (int i = 2; i < argc; i += 4) {
      const std::string_view strategy = argv[i];
      const Sizes sizes{std::atoll(argv[i + 1]), std::atoll(argv[i + 2]), std::atoi(argv[i + 3])};
      if (strategy == "ddp")
        run<ddpxx::DDP>(sizes, steps);
      else if (strategy == "fsdp")
        run<ddpxx::FSDP>(sizes, steps);
      else
        throw ddpxx::Error{ddpxx::Errc::config, "the strategy is ddp or fsdp, not " + std::string{strategy}};
    }
  });
}
