// prompt.hpp — the text that `generate` continues.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/nn/generate_config.hpp>

/// The prompt itself, or the text of the file for nanoGPT's `FILE:prompt.txt`; empty if no text is generated.
/// Errors  `config` if the file cannot be read, is not a regular file, or has more than 1 MiB.
inline std::string prompt_text(const ddpxx::GenerateConfig& config) {
  constexpr std::string_view kFile = "FILE:";
  constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
  if (config.tokens == 0) return {};
  if (!config.prompt.starts_with(kFile)) return config.prompt;
  const auto path = config.prompt.substr(kFile.size());
  auto text = ddpxx::read_file(path, ddpxx::Errc::config, kMaxBytes + 1);
  if (text.size() > kMaxBytes)
    throw ddpxx::Error{ddpxx::Errc::config,
                       "cannot read " + path + ": it has more than 1 MiB, which is too much for a prompt"};
  return text;
}
