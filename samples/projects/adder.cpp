// adder.cpp — a GPT that learns to add numbers, as minGPT's project of this name.
//
//     adder
//     ddpxx-run --standalone --nproc-per-node=2 adder --data.ndigit=3 --trainer.max_iters=20000
//
// Each score counts the sums of which every digit is right: of those that are trained on (with three digits of the
// first 500), and of those that are held out.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <ostream>
#include <vector>

#include <ddpxx/ddpxx.hpp>

#include "additions.hpp"
#include "project.hpp"

using Train = ddpxx::Trainer<ddpxx::GPT, Additions>;  // by AdamW, in float32, with DDP

struct Config {
  AdditionsConfig data;
  ddpxx::GPTConfig model;
  std::int64_t score_every = 500;
  Train::Config train = settings_of_mingpt<Train>(/*max_steps=*/5000);

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(field<&Config::score_every>("Count right sums each time after this number of steps", at_least(1),
                                              Unit::steps, Resume::free),
                  flatten<&Config::train>());
  }
  static constexpr auto aliases() { return kAliasesOfMinGPT; }
};

/// Prints how many sums the model has right, and the first five that it has wrong.
template <class Run>
void print_score(ddpxx::GPT& model, Run run, const Additions& data, const char* name, at::Device device) {
  constexpr std::int64_t kBatch = 100, kMaxSamples = 10'000, kShown = 5;
  const auto n = data.ndigit();
  const auto num = data.size() > kMaxSamples ? 5 * kBatch : data.size();
  std::int64_t right = 0, wrong = 0;
  for (std::int64_t first = 0; first < num; first += kBatch) {
    std::vector<std::int64_t> samples(static_cast<std::size_t>(std::min(kBatch, num - first)));
    std::iota(samples.begin(), samples.end(), first);
    const auto texts = data.texts(samples);
    const at::Tensor answers =
        ddpxx::generate(model, run, texts.narrow(1, 0, 2 * n).to(device), {.tokens = n + 1, .sample = false})
            .to(at::kCPU);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      if (at::equal(answers[row], texts[row])) {
        ++right;
      } else if (wrong++ < kShown) {
        std::int64_t answer = 0;
        for (auto digit = 3 * n; digit >= 2 * n; --digit)
          answer = 10 * answer + answers[row][digit].item<std::int64_t>();
        const auto [a, b] = data.summands(samples[i]);
        std::printf("GPT claims that %lld + %lld = %lld but gt is %lld\n", static_cast<long long>(a),
                    static_cast<long long>(b), static_cast<long long>(answer), static_cast<long long>(a + b));
      }
    }
  }
  std::printf("%s final score: %lld/%lld = %.2f%% correct\n", name, static_cast<long long>(right),
              static_cast<long long>(num), 100.0 * static_cast<double>(right) / static_cast<double>(num));
  std::fflush(stdout);
}

int main(int argc, char** argv) {
  ddpxx::run_program("adder", [&] {
    const auto [config, record] = ddpxx::parse_recorded<Config>(argc, argv);
    const auto& training = config.train.training;
    auto group = ddpxx::join(ddpxx::torchrun_environment(), training.device);
    const auto data = std::make_shared<const Additions>(config.data, Additions::Part::train);
    const Additions test{config.data, Additions::Part::test};
    auto model = ddpxx::make_model<ddpxx::GPT>(training.seed, group.device(), config.model, Additions::kVocabulary,
                                               data->block_size());
    std::ostream silent{nullptr};
    Train trainer{group, model, data, config.train, record, {.screen = &silent}};
    if (group.rank() == 0) trainer.add(std::make_shared<EachTenthStep>());

    const auto score = [&] {
      if (group.rank() != 0) return;  // with DDP each rank has the whole model
      print_score(*model, trainer.strategy().runner(), *data, "train", group.device());
      print_score(*model, trainer.strategy().runner(), test, "test", group.device());
    };
    trainer.fit([&] {
      while (!trainer.finished()) {
        trainer.step();
        if (trainer.save_due()) trainer.save();
        if (trainer.steps_done() % config.score_every == 0 && !trainer.finished()) score();
      }
    });
    score();
    group.leave();
  });
}
