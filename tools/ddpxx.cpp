// ddpxx.cpp — `ddpxx snapshot ...` inspects, converts and removes snapshots, on disk and behind s3://.
#include <algorithm>
#include <cstddef>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/program.hpp>
#include <ddpxx/version.hpp>

#include "snapshot_command.hpp"

namespace {

constexpr std::string_view kHelp = R"(usage: ddpxx snapshot COMMAND PLACE [KEY=VALUE ...]
       ddpxx --version

PLACE is a folder of snapshots, as training.save_dir names it, or s3://bucket/prefix.

  list PLACE                 one line for each snapshot, the newest first, and for what was begun and not finished
  show PLACE [step=N]        what a snapshot holds: where the run stood, its files, tensors, arguments and settings
  verify PLACE [step=N]      reads every byte of one snapshot, or of all; ends with 4 if one is damaged
  diff PLACE other=PLACE [step=N other_step=N]
                             what two snapshots differ in; ends with 1 if they do
  convert PLACE to=FILE.safetensors|FILE.pt|PLACE [step=N what=model|all layout=LAYOUT]
                             the tensors in one file, or the snapshot in another place
                             layout, of a .pt file that is written: mingpt_ddp, torchrun_tutorial, guide, state_dict
  convert FILE to=PLACE      what another program has saved, as a snapshot from which a run goes on; FILE is a .pt,
                             .pth, .bin or .ckpt file (PyTorch, minGPT-ddp, nanoGPT, Lightning) or a .safetensors
                             file (Hugging Face, or written by convert)
  prune PLACE keep_last=N [keep_best=N keep_every=N keep_every_epochs=N keep_every_time=12h]
                             removes the snapshots that no rule keeps

Without step=N the newest snapshot that is whole is meant.
)";

/// Whether --help stands before the command, in its place, or in that of its folder.
bool asks_for_help(const std::vector<std::string_view>& words) {
  const std::span front{words.data(), std::min<std::size_t>(words.size(), 3)};
  return words[0] == "help" || std::ranges::find(front, "--help") != front.end();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  ddpxx::run_program("ddpxx", [&] {
    if (words.empty() || words == std::vector<std::string_view>{"snapshot"} || asks_for_help(words)) {
      std::cout << kHelp;
    } else if (words[0] == "--version") {
      std::cout << ddpxx::version_line() << '\n';
    } else {
      if (words[0] != "snapshot")
        throw ddpxx::Error{ddpxx::Errc::config,
                           "there is no command \"" + std::string{words[0]} + "\": see ddpxx --help"};
      if (words.size() < 3)
        throw ddpxx::Error{ddpxx::Errc::config,
                           "ddpxx snapshot " + std::string{words[1]} + " needs a place: see --help"};
      snapshot_command(std::string{words[1]}, std::string{words[2]}, argc - 2, argv + 2);
    }
    // A failed output is an error, because this program exists only for its output.
    if (!std::cout.flush()) throw ddpxx::Error{ddpxx::Errc::storage, "the output could not be written"};
    return words.empty() ? static_cast<int>(ddpxx::Errc::config) : 0;
  });
}
