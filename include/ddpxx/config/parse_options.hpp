// ddpxx/config/parse_options.hpp — what a program tells parse_config.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include <ddpxx/config/command.hpp>

namespace ddpxx {

struct ParseOptions {
  /// The folder that is searched for config files after the current folder; --config-path overrides it.
  std::filesystem::path config_path = ".";
  std::string program{};     ///< The program's name in --help; by default as it was called.
  std::string more_usage{};  ///< What follows the settings in the usage line of --help, as `-- PROGRAM`.
  /// With "TRAIN_" the variable TRAIN_MODEL__N_LAYER sets model.n_layer; empty reads none.
  std::string environment_prefix{};
  std::vector<Command> commands{};  ///< The program's commands, for messages and --help, without `init`.
  /// The numbers of the arguments behind the program's name in messages, for a program that reads some arguments itself
  /// and leaves them out; empty if they count from 1.
  std::vector<std::size_t> argument_numbers{};
  /// For a program that shows a configuration and does not run it: a broken rule between settings, such as a missing
  /// text to train on, is a warning then.
  bool only_looks = false;
  /// Settings and groups that the program does not use, as a command that evaluates does not use `training.save_dir`.
  /// Broken rules about them are neither errors nor warnings; wrong values are errors in any case.
  std::vector<std::string> unused{};
};

}  // namespace ddpxx
