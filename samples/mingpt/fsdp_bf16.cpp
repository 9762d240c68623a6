// fsdp_bf16.cpp — mingpt for one choice of types: FSDP, recomputed activations, bfloat16.
#include <ddpxx/ddpxx.hpp>

#include "train.hpp"

int main(int argc, char** argv) {
  ddpxx::run_program("mingpt_fsdp_bf16", [&] {
    const Run run{ddpxx::parse_recorded<RunConfig>(
        argc, argv, {.config_path = MINGPT_CONFIG_PATH, .environment_prefix = "MINGPT_"})};
    auto group = ddpxx::join(ddpxx::torchrun_environment(), run.config.training.device, run.config.comm);
    const auto text = std::make_shared<const ddpxx::CharDataset>(run.config.data.text());
    train<ddpxx::Recompute<ddpxx::FSDP>, ddpxx::AutocastBF16>(run, {}, {}, group, text);
    group.leave();
  });
}
