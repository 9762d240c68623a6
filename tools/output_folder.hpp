// output_folder.hpp — makes the folder that a command writes to.
#pragma once

#include <filesystem>
#include <system_error>

#include <ddpxx/core/error.hpp>

/// Makes a folder that the user has named, with all folders above it. A symbolic link to a folder is followed: unlike a
/// link below the folder, it is the user's own choice.
/// Errors  `storage`, naming the folder and the reason.
inline void make_output_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw ddpxx::Error{ddpxx::Errc::storage, "cannot make the folder " + folder.string() + ": " + error.message()};
}
