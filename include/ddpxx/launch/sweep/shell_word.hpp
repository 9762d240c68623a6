// ddpxx/launch/sweep/shell_word.hpp — quotes texts for a shell.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ddpxx::detail {

/// The text as one word of a shell command, quoted if needed.
inline std::string shell_word(std::string_view text) {
  static constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) return std::string{text};
  std::string quoted = "'";
  for (const char c : text)
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  return quoted + '\'';
}

/// The words as a shell command.
inline std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const auto& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

}  // namespace ddpxx::detail
