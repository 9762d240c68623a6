// tests/parity/python.hpp — runs the Python side of a comparison.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

/// Runs a script of the tests with the interpreter and the torch that these tests were configured with, on one thread.
/// `script` is relative to the folder of tests.
inline void run_python(const std::string& script, const std::vector<std::string>& arguments) {
  const auto tests = std::filesystem::absolute(__FILE__).parent_path().parent_path();
  std::string command = "OMP_NUM_THREADS=1 PYTHONPATH='" DDPXX_PYTHONPATH "' '" DDPXX_PYTHON "' -B";
  for (const auto& word : arguments) command += " '" + word + "'";
  command.insert(command.find(" -B") + 3, " '" + (tests / script).string() + "'");
  if (std::system(command.c_str()) != 0) throw std::runtime_error{"failed: " + command};
}
