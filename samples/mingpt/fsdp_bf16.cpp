// fsdp_bf16.cpp — trains a GPT with one choice of types: FSDP, recomputed activations, bfloat16. Its keys are those of
// the types, and any other key is refused.
#include <memory>

#include <ddpxx/ddpxx.hpp>

using Data = ddpxx::Subset<ddpxx::CharDataset>;
using Train = ddpxx::Trainer<ddpxx::GPT, Data, ddpxx::AdamW, ddpxx::AutocastBF16, ddpxx::Recompute<ddpxx::FSDP>>;

struct Config {
  ddpxx::CharDatasetConfig data;
  ddpxx::GPTConfig model;
  Train::Config train;
  ddpxx::ConnectConfig comm;

  static constexpr auto describe() { return ddpxx::fields(ddpxx::flatten<&Config::train>()); }
};

int main(int argc, char** argv) {
  ddpxx::run_program("mingpt_fsdp_bf16", [&] {
    const auto [config, record] = ddpxx::parse_recorded<Config>(argc, argv);
    const auto& training = config.train.training;
    auto group = ddpxx::join(ddpxx::torchrun_environment(), training.device, config.comm);
    const auto text = std::make_shared<const ddpxx::CharDataset>(config.data);
    const auto parts = ddpxx::hold_out_tail(text, 0.9);
    auto model = ddpxx::make_model<ddpxx::GPT>(training.seed, group.device(), config.model, text->vocab_size(),
                                               text->block_size());
    Train trainer{group, model, parts.train, config.train, record, {.validation = parts.validation}};
    trainer.fit();
    group.leave();
  });
}
