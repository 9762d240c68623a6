// ddpxx/storage/folder_inl.hpp — the definitions of folder.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <vector>

#include <ddpxx/core/each_entry.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/failpoint.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/storage/folder.hpp>
#include <ddpxx/storage/folder_lock.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

namespace detail {

inline constexpr std::array kPausesToRead{std::chrono::milliseconds{100}, std::chrono::milliseconds{900}};

/// True for the errors that disks and file systems report for lost sectors and wrong checksums. File servers also
/// report some of these while they do not answer.
inline bool may_be_damage(int reason) {
  static constexpr std::array kReasons{EIO, ESTALE, EBADMSG, EUCLEAN, EILSEQ, ENODATA, EREMOTEIO};
  return std::ranges::find(kReasons, reason) != kReasons.end();
}

/// Calls `read`, and again after a pause if the system reports an error: file servers restart, and a full table of
/// open files becomes free again.
/// Errors  UnreadableObject for an error that a disk or a file system reports about this range.
template <class Read>
std::invoke_result_t<Read> try_to_read(const StoredRange& range, Read&& read) {
  for (std::size_t tries = 0;; ++tries) {
    try {
      return read();
    } catch (const FileError& error) {
      if (error.reason() == ENOENT || error.reason() == EACCES) throw;
      if (tries == kPausesToRead.size() && may_be_damage(error.reason())) throw UnreadableObject{error.what(), range};
      if (tries == kPausesToRead.size()) throw;
    }
    std::this_thread::sleep_for(kPausesToRead[tries]);
  }
}

inline std::filesystem::path without_slash(const std::filesystem::path& path) {
  return path.has_filename() || !path.has_relative_path() ? path : path.parent_path();
}

/// Calls `examine`, which is `lstat` or `stat`. Returns none if there is no such file.
template <class Examine>
std::optional<struct ::stat> status_of(const std::filesystem::path& path, const std::string& name, Examine&& examine) {
  return try_to_read(
      {.name = name}, [&]() -> std::optional<struct ::stat> {
        struct ::stat status {};
        if (!failpoint_fails("folder.examine") && examine(path.c_str(), &status) == 0) return status;
        if (errno == ENOENT) return std::nullopt;
        throw file_error(Errc::storage, "cannot examine", path);
      });
}

/// Calls `visit_file` with the name and the size of each regular file whose name begins with `prefix`. Looks at
/// no other files, and follows no symbolic link to a folder. A link to a file that does not exist has size 0.
template <class Visit>
void visit_files(const std::filesystem::path& root, const std::filesystem::path& folder, const std::string& prefix,
                 Visit&& visit_file) {
  const auto error = each_entry(folder, [&](const auto& entry) {
    const auto name = entry.path().lexically_relative(root).generic_string();
    if (!name.starts_with(prefix) && !prefix.starts_with(name + '/')) return;
    const auto status = status_of(entry.path(), name, ::lstat);
    if (!status) return;  // another process has removed it
    if (S_ISDIR(status->st_mode)) return visit_files(root, entry.path(), prefix, visit_file);
    if (!name.starts_with(prefix) || entry.path().filename().string().starts_with('.')) return;
    const auto file = S_ISLNK(status->st_mode) ? status_of(entry.path(), name, ::stat) : status;
    if (!file || S_ISREG(file->st_mode)) visit_file(name, file ? static_cast<std::uint64_t>(file->st_size) : 0U);
  });
  if (error && error != std::errc::no_such_file_or_directory)
    throw Error{Errc::storage, "cannot list " + folder.string() + ": " + error.message() +
                                   (folder == root ? "" : "; if this lasts, move that folder to another place")};
}

/// Makes the folder and its parents, so that they survive a loss of power.
inline void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  if (folder.empty() || std::filesystem::is_directory(folder, error)) return;
  const auto above = folder.has_parent_path() && folder.parent_path() != folder ? folder.parent_path() : ".";
  make_folder(above);
  if (failpoint_fails("io") || (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST))
    throw file_error(Errc::storage, "cannot make the folder", folder);
  sync_folder(above, folder);
}

}  // namespace detail

DDPXX_INLINE Folder::Folder(const std::filesystem::path& path, std::chrono::milliseconds patience_elsewhere)
    : path_{detail::without_slash(path.empty() ? "." : path)}, patience_elsewhere_{patience_elsewhere} {}

DDPXX_INLINE std::string Folder::full_name(const std::string& name) const { return (path_ / name).string(); }

DDPXX_INLINE void Folder::prepare() {
  detail::make_folder(path_);
  warn_if_world_writable();
  // The name of a temporary file: if this process is killed here, the next claim removes it. A process of another
  // container may have the same number, and try the folder at the same time.
  constexpr int kMaxNames = 1000;
  const auto stem = ".probe." + std::to_string(::getpid()) + '-';
  for (int number = 0; number < kMaxNames; ++number) {
    const auto probe = path_ / (stem + std::to_string(number) + ".tmp");
    if (!create_file_atomic(probe, bytes_of("objects can be written here\n"))) continue;
    std::error_code ignored;
    std::filesystem::remove(probe, ignored);
    return;
  }
  throw Error{Errc::storage, "cannot write to " + path_.string() + ": remove the files " + stem + "*.tmp there"};
}

DDPXX_INLINE bool Folder::claim(const std::string& owner) {
  owner_.reset();  // a second call must not wait for the lock of the first
  owner_ = detail::lock_folder(path_, owner, patience_elsewhere_);
  if (owner_) sweep();
  return owner_.has_value();
}

DDPXX_INLINE void Folder::write(const std::string& name, std::span<const Bytes> parts) {
  const auto path = path_of(name);
  make_folder_for(path);
  write_file_atomic(path, parts);
}

DDPXX_INLINE bool Folder::create(const std::string& name, Bytes content) {
  const auto path = path_of(name);
  make_folder_for(path);
  const bool made = create_file_atomic(path, content);
  // The folder may be one that a killed writer made and did not bring to the disk.
  if (path.parent_path() != path_) detail::sync_folder(path.parent_path().parent_path(), path);
  return made;
}

DDPXX_INLINE void Folder::read(const std::string& name, std::uint64_t offset, std::span<std::byte> buffer) {
  const auto path = path_of(name);
  const auto count = detail::try_to_read({.name = name, .offset = offset, .bytes = buffer.size()},
                                         [&] { return File::open(path, Errc::storage).read_at(offset, buffer); });
  if (count < buffer.size())
    throw Error{Errc::storage, "cannot read " + path.string() + ": it ends after " + std::to_string(offset + count) +
                                   " bytes, and " + std::to_string(offset + buffer.size()) + " are expected"};
}

DDPXX_INLINE std::optional<std::string> Folder::read_text(const std::string& name, std::uint64_t max_bytes) {
  const auto path = path_of(name);
  if (std::error_code error; !std::filesystem::exists(path, error) && !error) return std::nullopt;
  const StoredRange whole{.name = name, .max_bytes = max_bytes};
  const auto wanted = max_bytes + (max_bytes < std::numeric_limits<std::uint64_t>::max() ? 1U : 0U);
  std::string text;
  try {
    text = detail::try_to_read(whole, [&] { return read_file(path, Errc::storage, wanted); });
  } catch (const FileError& error) {
    if (error.reason() == ENOENT) return std::nullopt;  // another process has just removed it
    throw;
  }
  if (text.size() > max_bytes)
    throw UnreadableObject{
        "cannot read " + path.string() + ": it has more than " + std::to_string(max_bytes) + " bytes", whole};
  return text;
}

DDPXX_INLINE std::vector<StoredObject> Folder::list(const std::string& prefix) {
  std::vector<StoredObject> found;
  detail::visit_files(path_, path_, prefix, [&](const std::string& name, std::uint64_t size) {
    found.push_back({name, size});
  });
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return found;
}

DDPXX_INLINE std::vector<std::string> Folder::links() {
  std::vector<std::string> names;
  detail::each_entry(path_, [&](const auto& entry) {
    std::error_code gone;
    if (entry.is_symlink(gone)) names.push_back(entry.path().filename().string());
  });
  std::sort(names.begin(), names.end());
  return names;
}

DDPXX_INLINE void Folder::remove(const std::string& name) {
  const auto path = path_of(name);
  failpoint("folder.before_remove");
  if ((failpoint_fails("io") || ::unlink(path.c_str()) != 0) && errno != ENOENT)
    throw file_error(Errc::storage, "cannot remove", path);
  failpoint("folder.after_remove");
  // Remove the folder if this was its last file. A folder with other files stays.
  for (auto folder = path.parent_path(); folder != path_ && ::rmdir(folder.c_str()) == 0;)
    folder = folder.parent_path();
}

DDPXX_INLINE void Folder::sweep() const {
  std::vector<std::filesystem::path> folders{path_};
  detail::each_entry(path_, [&](const auto& entry) {
    std::error_code gone;
    if (entry.is_directory(gone) && !entry.is_symlink(gone)) folders.push_back(entry.path());
  });
  for (const auto& folder : folders)
    detail::each_entry(folder, [](const auto& entry) {
      if (detail::TemporaryFile::is_temporary(entry.path().filename().string()))
        detail::TemporaryFile::unlink_if_left(entry.path());
    });
}

DDPXX_INLINE std::filesystem::path Folder::path_of(const std::string& name) const {
  const std::filesystem::path relative{name};
  const auto leaves = [](const std::filesystem::path& part) { return part == ".." || part == "."; };
  if (name.empty() || relative.is_absolute() || std::any_of(relative.begin(), relative.end(), leaves))
    throw Error{Errc::storage, "\"" + name + "\" is not a valid name of an object in " + path_.string()};
  return path_ / relative;
}

DDPXX_INLINE void Folder::make_folder_for(const std::filesystem::path& object) const {
  const auto folder = object.parent_path();
  if (folder == path_) return detail::make_folder(folder);
  make_folder_for(folder);
  if (make_subfolder(folder)) detail::sync_folder(folder.parent_path(), folder);
}

DDPXX_INLINE void Folder::warn_if_world_writable() const {
  struct ::stat folder {};
  if (::stat(path_.c_str(), &folder) != 0 || !S_ISDIR(folder.st_mode) || (folder.st_mode & S_IWOTH) == 0) return;
  const bool is_of_stranger = folder.st_uid != ::geteuid() && folder.st_uid != 0;
  if ((folder.st_mode & S_ISVTX) == 0)
    Log{0}.warn("by its permissions, every user of this machine may replace and remove the files in " + path_.string() +
                ": take write access from others (chmod o-w) where the file system keeps " +
                "permissions, or choose another folder if others use this machine");
  else if (is_of_stranger)
    Log{0}.warn(path_.string() +
                " belongs to another user, who may replace and remove its files, and all users may "
                "write to it: choose a folder of your own");
}

DDPXX_INLINE std::optional<std::uint64_t> Folder::free_bytes() {
  std::error_code error;
  const auto space = std::filesystem::space(path_, error);
  // A file system that does not know its size reports 0.
  return error || space.capacity == 0 ? std::nullopt : std::optional<std::uint64_t>{space.available};
}

}  // namespace ddpxx
