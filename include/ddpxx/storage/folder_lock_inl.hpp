// ddpxx/storage/folder_lock_inl.hpp — the definitions of folder_lock.hpp.
#pragma once

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/failpoint.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/host_name.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/storage/folder_lock.hpp>

namespace ddpxx::detail {

inline constexpr std::chrono::seconds kPatienceOnThisHost{3};

inline std::string first_line_of(const std::string& text) { return text.substr(0, text.find('\n')); }

/// Returns what the holder of a lock has written into the file.
inline std::string holder_of(const std::filesystem::path& owner) {
  try {
    return first_line_of(read_file(owner, Errc::storage, 200));
  } catch (const FileError&) {
    return "a program whose name cannot be read";  // SMB lets no other program read a locked file
  }
}

/// Takes the lock on `.owner`, which is open as `descriptor`. Returns 0, or the errno of a lock that cannot be taken,
/// for example since the file system has no locks.
///
/// Errors  `storage` if another process holds the lock.
inline int lock_owner(int descriptor, const std::filesystem::path& folder,
                      std::chrono::milliseconds patience_elsewhere) {
  const auto owner = folder / ".owner";
  // The holder may be a killed process that has not ended yet: try for a while.
  std::chrono::milliseconds patience = kPatienceOnThisHost;
  for (const auto begun = std::chrono::steady_clock::now();
       failpoint_fails("folder.lock") || ::flock(descriptor, LOCK_EX | LOCK_NB) != 0;) {
    if (errno != EWOULDBLOCK) return errno;
    if (std::chrono::steady_clock::now() - begun >= patience) {
      const auto holder = holder_of(owner);
      const bool is_elsewhere = !holder.ends_with(" on " + host_name());
      if (!is_elsewhere || patience >= patience_elsewhere)
        throw Error{Errc::storage,
                    folder.string() + " is in use by " + holder + ": wait for it to end, or choose another place" +
                        (is_elsewhere ? "; if its machine is down, remove " + owner.string() : std::string{})};
      patience = patience_elsewhere;
      Log{0}.info(folder.string() + " is in use by " + holder + ": waiting up to " +
                  std::to_string(std::chrono::ceil<std::chrono::seconds>(patience).count()) +
                  " s, since a file server holds the lock of a machine that is lost for about 90 s");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
  }
  return 0;
}

/// Removes the name `.owner` if the file has other names too, as `cp -al` makes them: writing to `.owner` must not
/// change another folder's file. Only the process that holds the file's lock removes the name.
inline void remove_shared_owner(const std::filesystem::path& folder, std::chrono::milliseconds patience_elsewhere) {
  const auto path = folder / ".owner";
  struct ::stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_nlink < 2) return;
  // A network file system may lock only what is open for writing.
  Descriptor shared{::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
  if (!shared) shared = Descriptor{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
  if (!shared && errno == ENOENT) return;  // another process has removed it meanwhile
  if (!shared) throw file_error(Errc::storage, "cannot open", path);
  const int reason = lock_owner(shared.get(), folder, patience_elsewhere);
  // Where the file system has no locks, no process holds this one. After any other error a process may hold it.
  if (reason != 0 && reason != EOPNOTSUPP && reason != ENOSYS) return;
  struct ::stat locked {};
  const bool is_at_path = ::fstat(shared.get(), &locked) == 0 && is_name_of(locked, path);
  if (is_at_path && ::unlink(path.c_str()) != 0) throw file_error(Errc::storage, "cannot remove", path);
}

DDPXX_INLINE std::optional<File> lock_folder(const std::filesystem::path& folder, const std::string& owner,
                                             std::chrono::milliseconds patience_elsewhere) {
  const auto path = folder / ".owner";
  for (;;) {
    remove_shared_owner(folder, patience_elsewhere);
    auto file = File::open_to_append(path, Errc::storage);
    const bool has_locks = lock_owner(file.descriptor(), folder, patience_elsewhere) == 0;
    if (!file.is_at(path)) continue;  // another process has replaced the file meanwhile
    if (!has_locks) return std::nullopt;
    if (::ftruncate(file.descriptor(), 0) != 0) throw file_error(Errc::storage, "cannot write", path);
    file.write(bytes_of(owner + '\n'));
    return file;
  }
}

}  // namespace ddpxx::detail
