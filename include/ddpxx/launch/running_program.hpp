// ddpxx/launch/running_program.hpp — the file of the program that runs.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

#include <ddpxx/core/error.hpp>

namespace ddpxx::detail {

/// The path of the program of this process.
/// Errors  `config` if the system does not tell.
inline std::string running_program() {
  std::error_code failure;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", failure);
  if (failure) throw Error{Errc::config, "cannot find the program that runs: /proc/self/exe: " + failure.message()};
  return path.string();
}

}  // namespace ddpxx::detail
