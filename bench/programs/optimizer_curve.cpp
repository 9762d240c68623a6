// optimizer_curve.cpp — trains a small GPT on a text with the optimizer that the first argument names.
//
//   optimizer_curve adamw|muon [KEY=VALUE...]
#include <cstdint>
#include <memory>
#include <string_view>

#include <ddpxx/ddpxx.hpp>

namespace {

template <class Optimizer>
struct Config {
  using Train = ddpxx::Trainer<ddpxx::GPT, ddpxx::Subset<ddpxx::CharDataset>, Optimizer>;

  ddpxx::CharDatasetConfig data{.block_size = 64};
  ddpxx::GPTConfig model{.n_layer = 4, .n_head = 4, .n_embd = 128, .dropout = 0.0};
  typename Train::Config train;

  static constexpr auto describe() { return ddpxx::fields(ddpxx::flatten<&Config::train>()); }
};

template <class Optimizer>
void train(int argc, char** argv) {
  const auto [config, record] = ddpxx::parse_recorded<Config<Optimizer>>(argc, argv);
  const auto& training = config.train.training;
  auto group = ddpxx::join(ddpxx::torchrun_environment(), training.device);
  auto text = std::make_shared<const ddpxx::CharDataset>(config.data);
  const auto parts = ddpxx::hold_out_tail(text, 0.9);
  auto model = ddpxx::make_model<ddpxx::GPT>(training.seed, group.device(), config.model, text->vocab_size(),
                                             text->block_size());
  typename Config<Optimizer>::Train trainer{group,        model,  parts.train,
                                            config.train, record, {.validation = parts.validation}};
  trainer.fit();
  group.leave();
}

}  // namespace

int main(int argc, char** argv) {
  ddpxx::run_program("optimizer_curve", [&] {
    const std::string_view name = argc > 1 ? argv[1] : "";
    if (name == "adamw") return train<ddpxx::AdamW>(argc - 1, argv + 1);
    if (name == "muon") return train<ddpxx::Muon>(argc - 1, argv + 1);
    throw ddpxx::Error{ddpxx::Errc::config, "the first argument names the optimizer: adamw or muon"};
  });
}
