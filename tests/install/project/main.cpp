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
    const auto config = ddpxx::parse_config<Config>(argc, argv);
    auto group = ddpxx::join(ddpxx::torchrun_environment());
    auto text = std::make_shared<const ddpxx::CharDataset>(config.data);
    auto model = std::make_shared<ddpxx::GPT>(config.model, text->vocab_size(), text->block_size());

    using Train = ddpxx::Trainer<ddpxx::GPT, ddpxx::CharDataset, ddpxx::AdamW, ddpxx::Float32, ddpxx::DDP>;
    Train trainer{group, model, text, {.training = config.training, .optimizer = config.optimizer}};
    trainer.fit();
    group.leave();
  });
}
