// tests/parity/python.hpp — runs the Python side of a comparison.
#pragma once

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// Runs a script with the interpreter that CTest names in DDPXX_PYTHON, and returns what the script prints. `script` is
/// relative to this folder. Python may write its bytecode cache, because the first import of torch is slow.
inline std::string run_python(std::string_view script, const std::vector<std::string>& arguments) {
  const char* interpreter = std::getenv("DDPXX_PYTHON");
  const auto path = std::filesystem::absolute(__FILE__).parent_path() / script;
  std::string command = "env -u PYTHONDONTWRITEBYTECODE ";
  command += interpreter != nullptr ? interpreter : "python3";
  command += " '" + path.string() + "'";
  for (const auto& word : arguments) command += " '" + word + "'";
  std::FILE* output = ::popen(command.c_str(), "r");
  if (output == nullptr) throw std::runtime_error{"cannot start: " + command};
  std::string text;
  std::array<char, 4096> part{};
  while (const auto size = std::fread(part.data(), 1, part.size(), output)) text.append(part.data(), size);
  if (::pclose(output) != 0) throw std::runtime_error{"failed: " + command + '\n' + text};
  return text;
}
