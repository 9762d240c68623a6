// shown_text.hpp — generated text on its way to the standard output.
#pragma once

#include <string>
#include <unistd.h>

#include <ddpxx/core/log.hpp>

/// A training text may teach a model escape sequences: a terminal gets them written out. A pipe or a file gets every
/// byte as it is.
inline std::string shown_text(const std::string& text) {
  return ::isatty(STDOUT_FILENO) != 0 ? ddpxx::harmless_lines(text) : text;
}
