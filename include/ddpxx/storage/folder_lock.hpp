// ddpxx/storage/folder_lock.hpp — keeps other programs from writing to a folder, by a lock on its file `.owner`.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include <ddpxx/core/file.hpp>

namespace ddpxx::detail {

/// Locks `.owner` in `folder` and writes `owner` into it. None if the file system has no locks. The lock lasts as long
/// as the file is open. `patience_elsewhere` is how long to wait for a holder on another machine.
///
/// Errors  `storage`, also if another process holds the lock.
std::optional<File> lock_folder(const std::filesystem::path& folder, const std::string& owner,
                                std::chrono::milliseconds patience_elsewhere);

}  // namespace ddpxx::detail

#ifndef DDPXX_CORE
#include <ddpxx/storage/folder_lock_inl.hpp>
#endif
