// page_snippets.cpp — the code of extending.md, interop.md, snapshots.md and sweeps.md in docs/, compiled and not run.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <ddpxx/config/check_sweep.hpp>
#include <ddpxx/config/sweep.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/ddpxx.hpp>
#include <ddpxx/interop/checkpoint_file.hpp>
#include <ddpxx/interop/torch_state.hpp>
#include <ddpxx/launch/sweep_command.hpp>
#include <ddpxx/launch/sweep_runner.hpp>

struct MyConfig {
  std::int64_t seed = 1;
  static constexpr auto describe() { return ddpxx::fields(ddpxx::field<&MyConfig::seed>("Seed")); }
};

void load_files(ddpxx::GPT& gpt) {
  ddpxx::load_gpt2(gpt, ddpxx::read_model_file("ckpt.pt"));        // or model.safetensors: any of the files above
  const auto file = ddpxx::read_safetensors("model.safetensors");  // file.tensors, file.metadata
}

std::shared_ptr<ddpxx::GPT> load_folder() {
  const std::filesystem::path folder{"gpt2"};
  const auto gpt = ddpxx::from_pretrained(ddpxx::read_file(folder / "config.json", ddpxx::Errc::storage),
                                          ddpxx::read_model_file(folder));
  return gpt;
}

void load_part(torch::nn::Module& net) {
  ddpxx::load_state_dict(net, ddpxx::read_model_file("resnet18.pt"), ddpxx::Strict::no);
}

void keep_checkpoints(std::int64_t epoch, torch::nn::Linear model, torch::optim::AdamW& optimizer) {
  ddpxx::CheckpointFiles files{"my-bucket"};  // s3://my-bucket/checkpoints, in a program with ddpxx::s3
  files.save_checkpoint(epoch, *model, optimizer, "epoch_7.pt");
  const auto loaded = files.load_checkpoint("epoch_7.pt");  // loaded.epoch, loaded.model, loaded.optimizer
}

void load_best(torch::nn::Module& net) {
  const auto choice = ddpxx::parse_snapshot_choice("runs/a:best");  // or "runs/a:300", or "runs/a" for the newest
  const auto storage = ddpxx::open_storage(choice.place);
  ddpxx::load_model(net, *storage, ddpxx::choose_snapshot(*storage, choice));
}

void read_weights() {
  const auto snapshot = ddpxx::load_snapshot("runs/a");  // the newest that is whole, all tensors, one process
  if (!snapshot) throw ddpxx::Error{ddpxx::Errc::storage, "runs/a has no snapshot"};
  const auto weight = snapshot->tensors.at("model.transformer.wte.weight");  // and snapshot->run.step
  const auto model = ddpxx::load_snapshot("runs/a", [](std::string_view name) { return name.starts_with("model."); });
}

void clip_weights(ddpxx::TrainStep<ddpxx::GPT>& step) {
  step.strategy().wait_pending();
  for (const auto& slice : step.strategy().slices()) at::Tensor{slice.values}.clamp_(-0.01, 0.01);
  step.strategy().finish_step();
}

int train(int argc, char** argv, const ddpxx::ParseOptions& options) {
  if (const auto sweep = ddpxx::read_sweep(argc, argv, ddpxx::table_of<MyConfig>())) {
    ddpxx::check_sweep<MyConfig>(*sweep, options);
    return ddpxx::run_sweep(*sweep, ddpxx::own_command(argv[0]));
  }
  return 0;
}
