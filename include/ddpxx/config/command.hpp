// ddpxx/config/command.hpp — a command of a program.
#pragma once

#include <string>

namespace ddpxx {

/// A command of a program, given as its first argument: `plan` in `mingpt plan world_size=8`. The program runs it. It
/// is listed for messages and --help, and so that its name is not taken for a setting.
struct Command {
  std::string name;
  std::string help;  ///< Help in one line.
};

}  // namespace ddpxx
