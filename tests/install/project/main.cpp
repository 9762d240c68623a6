#include <memory>

#include <ddpxx/ddpxx.hpp>

struct Config {  // every field is a YAML key and an argument: training.max_steps=100
  ddpxx::CharDatasetConfig data;
  ddpxx::GPTConfig model;
  ddpxx::AdamWConfig optimizer;
  ddpxx::TrainingConfig training;
};

int main(int argc, char** argv) {
  ddpxx::run_program("first", [&] {
    const auto [config, record] = ddpxx::parse_recorded<Config>(argc, argv);
    auto group = ddpxx::join(ddpxx::torchrun_environment(), config.training.device);
    auto text = std::make_shared<const ddpxx::CharDataset>(config.data);
    auto model = ddpxx::make_model<ddpxx::GPT>(config.training.seed, group.device(), config.model, text->vocab_size(),
                                               text->block_size());

    using Train = ddpxx::Trainer<ddpxx::GPT, ddpxx::CharDataset, ddpxx::AdamW, ddpxx::Float32, ddpxx::DDP>;
    Train trainer{group,
                  model,
                  text,
                  {.training = config.training,
                   .optimizer = config.optimizer,
                   .settings = record.settings,
                   .overrides = record.overrides}};
    trainer.fit();
    group.leave();
  });
}
