// shown_text.hpp — prepares generated text for the standard output.
#pragma once

#include <string>
#include <unistd.h>

#include <ddpxx/core/log.hpp>

/// Returns the text with escape sequences made visible if the output is a terminal, because a training text may teach a
/// model such sequences. A pipe or a file gets every byte unchanged.
inline std::string shown_text(const std::string& text) {
  return ::isatty(STDOUT_FILENO) != 0 ? ddpxx::harmless_lines(text) : text;
}
