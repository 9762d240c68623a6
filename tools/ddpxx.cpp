// ddpxx.cpp — `ddpxx snapshot ...` inspects, converts and removes snapshots, on disk and behind s3://; `ddpxx tokenize`
// makes files of tokens; `ddpxx slurm` and `ddpxx k8s` write jobs for clusters; `ddpxx doctor` and `ddpxx net` check
// hosts and the network between them; `ddpxx bundle` copies a program with its libraries.
#include <algorithm>
#include <cstddef>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/standard_output.hpp>
#include <ddpxx/core/suggest.hpp>
#include <ddpxx/launch/program.hpp>
#include <ddpxx/version.hpp>

#include "bundle_command.hpp"
#include "doctor_command.hpp"
#include "k8s_command.hpp"
#include "net_command.hpp"
#include "slurm_command.hpp"
#include "snapshot_command.hpp"
#include "tokenize_command.hpp"

namespace {

constexpr std::string_view kHelp = R"(usage: ddpxx snapshot COMMAND PLACE [KEY=VALUE ...]
       ddpxx tokenize PATH tokenizer=PLACE to=FOLDER [KEY=VALUE ...]
       ddpxx slurm [KEY=VALUE ...] -- PROGRAM [ARGUMENTS]
       ddpxx k8s [KEY=VALUE ...] -- PROGRAM [ARGUMENTS]
       ddpxx doctor [KEY=VALUE ...]
       ddpxx net [KEY=VALUE ...]
       ddpxx bundle PROGRAM... to=FOLDER
       ddpxx --version

tokenize writes the tokens of texts to train.bin and val.bin, on which mingpt and nanoGPT train
slurm    prints a script for sbatch: ranks on one or several nodes, or a job array where ARGUMENTS ask for a sweep
k8s      prints a TrainJob of Kubeflow Trainer
doctor   checks whether this machine can train, or the machines of a launcher; one line for each check
net      measures latency and bandwidth between ranks: of a launcher, or of two on this machine
bundle   copies programs and the libraries that they need into a folder, which runs on a machine without LibTorch
Each lists its settings by --help: ddpxx slurm --help.

ddpxx snapshot: PLACE is a folder of snapshots, as training.save_dir names it, or s3://bucket/prefix.

  list PLACE                 one line for each snapshot, the newest first, and for what was begun and not finished
  show PLACE [step=N]        what a snapshot holds: where the run stood, its files, tensors, arguments and settings
  verify PLACE [step=N]      reads every byte of one snapshot, or of all; ends with 4 if one is damaged
  diff PLACE other=PLACE [step=N other_step=N]
                             what two snapshots differ in; ends with 1 if they do
  convert PLACE to=FILE.safetensors|FILE.pt|PLACE [step=N what=model|all layout=LAYOUT]
                             the tensors in one file, or the snapshot in another place
                             layout, of a .pt file that is written: mingpt_ddp, torchrun_tutorial, guide, torchvision,
                             state_dict
  convert PLACE to=FOLDER layout=huggingface [step=N]
                             a GPT as a folder that transformers loads: config.json and model.safetensors
  convert FOLDER to=PLACE    a GPT-2 in such a folder, as a snapshot from which mingpt generates and trains
  convert FILE to=PLACE      what another program has saved, as a snapshot from which a run goes on; FILE is a .pt,
                             .pth, .bin or .ckpt file (PyTorch, minGPT-ddp, nanoGPT, Lightning) or a .safetensors
                             file (Hugging Face, or written by convert)
  prune PLACE keep_last=N [keep_best=N keep_every=N keep_every_epochs=N keep_every_time=12h]
                             removes the snapshots that no rule keeps

Without step=N the newest snapshot that is whole is meant.
)";

/// Whether --help or -h stands before the command, or in the command's place or the folder's place of `ddpxx snapshot`.
bool asks_for_help(const std::vector<std::string_view>& words) {
  const std::span front{words.data(), std::min<std::size_t>(words.size(), words[0] == "snapshot" ? 3 : 1)};
  const auto is_help = [](std::string_view word) { return word == "--help" || word == "-h"; };
  return words[0] == "help" || std::ranges::any_of(front, is_help);
}

void run_snapshot(int argc, char** argv) {
  if (argc < 3 || std::string_view{argv[2]}.empty())
    throw ddpxx::Error{ddpxx::Errc::config,
                       "ddpxx snapshot " + std::string{argv[1]} + " needs a place: see ddpxx --help"};
  snapshot_command(argv[1], argv[2], argc - 1, argv + 1);
}

/// Runs the command whose name is argv[0], and returns the exit code.
int run_command(int argc, char** argv) {
  const std::string name = argv[0];
  if (name == "doctor") return doctor_command(argc, argv);
  if (name == "snapshot") return run_snapshot(argc, argv), 0;
  if (name == "tokenize") return tokenize_command(argc, argv), 0;
  if (name == "slurm") return slurm_command(argc, argv), 0;
  if (name == "k8s") return k8s_command(argc, argv), 0;
  if (name == "net") return net_command(argc, argv), 0;
  if (name == "bundle") return bundle_command(argc, argv), 0;
  const std::vector<std::string> known{"snapshot", "tokenize", "slurm", "k8s", "doctor", "net", "bundle"};
  const auto meant = ddpxx::nearest(name, known);
  throw ddpxx::Error{ddpxx::Errc::config, "there is no command \"" + name + "\"" +
                                              (meant ? " (did you mean " + *meant + "?)" : "") + ": see ddpxx --help"};
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  ddpxx::run_program("ddpxx", [&] {
    const bool lacks_command = words.empty() || words == std::vector<std::string_view>{"snapshot"};
    int code = lacks_command ? static_cast<int>(ddpxx::Errc::config) : 0;
    if (lacks_command || asks_for_help(words)) {
      std::cout << kHelp;
    } else if (words[0] == "--version") {
      std::cout << ddpxx::version_line() << '\n';
    } else {
      code = run_command(argc - 1, argv + 1);
    }
    // A failed output is an error, because this program exists only for its output.
    ddpxx::check_standard_output();
    return code;
  });
}
