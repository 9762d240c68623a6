// chargpt.cpp — a GPT that learns to continue a text character by character, as minGPT's project of this name.
//
//     chargpt data.path=input.txt
//     ddpxx-run --standalone --nproc-per-node=2 chargpt data.path=input.txt --model.model_type=gpt-nano
//
// The prompt's characters must occur in the text; generate.prompt= sets another one than minGPT's.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <ostream>
#include <string>

#include <ddpxx/ddpxx.hpp>

#include "project.hpp"

using Train = ddpxx::Trainer<ddpxx::GPT, ddpxx::CharDataset>;  // by AdamW, in float32, with DDP

struct Config {
  ddpxx::CharDatasetConfig data{.path = "input.txt", .block_size = 128};
  ddpxx::GPTConfig model{.model_type = "gpt-mini"};
  ddpxx::GenerateConfig generate{.tokens = 500, .prompt = "O God, O God!", .top_k = 10};
  std::int64_t sample_every = 500;
  Train::Config train = settings_of_mingpt<Train>(/*max_steps=*/5000);

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(field<&Config::sample_every>("Generate a text each time after this number of steps", at_least(1),
                                               Unit::steps, Resume::free),
                  flatten<&Config::train>());
  }
  static constexpr auto aliases() { return kAliasesOfMinGPT; }
};

int main(int argc, char** argv) {
  ddpxx::run_program("chargpt", [&] {
    const auto [config, record] = ddpxx::parse_recorded<Config>(argc, argv);
    const auto& training = config.train.training;
    auto group = ddpxx::join(ddpxx::torchrun_environment(), training.device);
    const auto text = ddpxx::on_every_rank(group, ddpxx::Errc::data,
                                           [&] { return std::make_shared<const ddpxx::CharDataset>(config.data); });
    const auto& alphabet = text->alphabet();
    auto ids = alphabet.encode(config.generate.prompt);
    if (ids.empty()) ids.push_back(0);
    const auto prompt = at::tensor(ids).unsqueeze(0).to(group.device());
    auto model = ddpxx::make_model<ddpxx::GPT>(training.seed, group.device(), config.model, text->vocab_size(),
                                               text->block_size());
    std::ostream silent{nullptr};
    Train trainer{group, model, text, config.train, record, {.screen = &silent}};
    if (group.rank() == 0) trainer.add(std::make_shared<EachTenthStep>());

    const auto print_sample = [&] {
      if (group.rank() != 0) return;  // with DDP each rank has the whole model
      // The training's dropout must draw the same numbers however often a text is generated.
      const ddpxx::RandomScope random{ddpxx::random_states(group.device())};
      const at::Tensor sample =
          ddpxx::generate(*model, trainer.strategy().runner(), prompt, config.generate).to(at::kCPU).squeeze(0);
      const auto written =
          alphabet.decode({sample.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(sample.numel())});
      std::puts(ddpxx::harmless_lines(written).c_str());  // a launcher passes the text on to its terminal
      std::fflush(stdout);
    };
    trainer.fit([&] {
      while (!trainer.finished()) {
        trainer.step();
        if (trainer.save_due()) trainer.save();
        if (trainer.steps_done() % config.sample_every == 0 && !trainer.finished()) print_sample();
      }
    });
    print_sample();
    group.leave();
  });
}
