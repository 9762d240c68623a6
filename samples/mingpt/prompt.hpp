// prompt.hpp — the text that a generated one goes on from.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>

/// The prompt itself, or with nanoGPT's `FILE:prompt.txt` what the file holds.
/// Errors  `config` when the file cannot be read.
inline std::string prompt_text(const std::string& prompt) {
  constexpr std::string_view kFile = "FILE:";
  constexpr std::size_t kMostBytes = std::size_t{1} << 20;
  if (!prompt.starts_with(kFile)) return prompt;
  return ddpxx::read_file(prompt.substr(kFile.size()), ddpxx::Errc::config, kMostBytes);
}
