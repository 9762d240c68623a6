#include <memory>

#include <ddpxx/ddpxx.hpp>

using Train = ddpxx::Trainer<ddpxx::GPT, ddpxx::CharDataset>;  // by AdamW, in float32, with DDP

struct Config {  // every field is a YAML key and an argument: batch_size=16 training.max_steps=100
  ddpxx::CharDatasetConfig data;
  ddpxx::GPTConfig model;
  Train::Config train;

  static constexpr auto describe() { return ddpxx::fields(ddpxx::flatten<&Config::train>()); }
};

int main(int argc, char** argv) {
  ddpxx::run_program("first", [&] {
    const auto [config, record] = ddpxx::parse_recorded<Config>(argc, argv);
    const auto& training = config.train.training;
    auto group = ddpxx::join(ddpxx::torchrun_environment(), training.device);
    auto text = std::make_shared<const ddpxx::CharDataset>(config.data);
    auto model = ddpxx::make_model<ddpxx::GPT>(training.seed, group.device(), config.model, text->vocab_size(),
                                               text->block_size());
    Train trainer{group, model, text, config.train, record};
    trainer.fit();
    group.leave();
  });
}
