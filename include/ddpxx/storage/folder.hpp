// ddpxx/storage/folder.hpp — a storage whose objects are the files of a folder.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/failpoint.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

/// A storage in a folder of a local or mounted disk. Names that would lead out of the folder are refused.
class Folder final : public Storage {
 public:
  explicit Folder(const std::filesystem::path& path) : path_{without_slash(path.empty() ? "." : path)} {}

  std::string full_name(const std::string& name) const override { return (path_ / name).string(); }

  void prepare() override {
    make_folder(path_);
    warn_if_world_writable();
    // The name of a temporary file: if this process is killed here, the next claim removes it.
    const auto probe = path_ / (".probe." + std::to_string(::getpid()) + ".tmp");
    std::error_code ignored;
    std::filesystem::remove(probe, ignored);
    const bool made = create_file_atomic(probe, bytes_of("objects can be written here\n"));
    std::filesystem::remove(probe, ignored);
    if (!made) throw Error{Errc::storage, "cannot write to " + path_.string() + ": its files do not last"};
  }

  /// Takes a lock on the file `.owner`. The system releases it when the process ends, in whatever way.
  bool claim(const std::string& owner) override {
    const auto path = path_ / ".owner";
    bool has_locks = true;
    do {
      remove_shared_owner(path);
      owner_ = File::open_to_append(path, Errc::storage);
      has_locks = lock_owner(*owner_);
    } while (!owner_->is_at(path));  // another process has replaced the file meanwhile
    if (!has_locks) return false;
    if (::ftruncate(owner_->descriptor(), 0) != 0) throw file_error(Errc::storage, "cannot write", path);
    owner_->write(bytes_of(owner + '\n'));
    sweep();
    return true;
  }

  void write(const std::string& name, std::span<const Bytes> parts) override {
    const auto path = path_of(name);
    make_folder_for(path);
    write_file_atomic(path, parts);
  }

  bool create(const std::string& name, Bytes content) override {
    const auto path = path_of(name);
    make_folder_for(path);
    const bool made = create_file_atomic(path, content);
    // The folder may be one that a killed writer made and did not bring to the disk.
    if (path.parent_path() != path_) detail::sync_folder(path.parent_path().parent_path(), path);
    return made;
  }

  void read(const std::string& name, std::uint64_t offset, std::span<std::byte> buffer) override {
    const auto path = path_of(name);
    const auto count = try_to_read({.name = name, .offset = offset, .bytes = buffer.size()},
                                   [&] { return File::open(path, Errc::storage).read_at(offset, buffer); });
    if (count < buffer.size())
      throw Error{Errc::storage, "cannot read " + path.string() + ": it ends after " + std::to_string(offset + count) +
                                     " bytes, and " + std::to_string(offset + buffer.size()) + " are expected"};
  }

  std::optional<std::string> read_text(const std::string& name, std::uint64_t max_bytes) override {
    const auto path = path_of(name);
    if (std::error_code error; !std::filesystem::exists(path, error) && !error) return std::nullopt;
    const StoredRange whole{.name = name, .max_bytes = max_bytes};
    auto text = try_to_read(whole, [&] { return read_file(path, Errc::storage, max_bytes + 1); });
    if (text.size() > max_bytes)
      throw UnreadableObject{
          "cannot read " + path.string() + ": it has more than " + std::to_string(max_bytes) + " bytes", whole};
    return text;
  }

  std::vector<StoredObject> list(const std::string& prefix) override {
    std::vector<StoredObject> found;
    visit(path_, prefix, [&](const std::string& name, std::uint64_t size) { found.push_back({name, size}); });
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return found;
  }

  std::vector<std::string> links() override {
    std::vector<std::string> names;
    each_entry(path_, [&](const auto& entry) {
      std::error_code gone;
      if (entry.is_symlink(gone)) names.push_back(entry.path().filename().string());
    });
    std::sort(names.begin(), names.end());
    return names;
  }

  void remove(const std::string& name) override {
    const auto path = path_of(name);
    failpoint("folder.before_remove");
    if ((failpoint_fails("io") || ::unlink(path.c_str()) != 0) && errno != ENOENT)
      throw file_error(Errc::storage, "cannot remove", path);
    failpoint("folder.after_remove");
    // Remove the folder if this was its last file. A folder with other files stays.
    for (auto folder = path.parent_path(); folder != path_ && ::rmdir(folder.c_str()) == 0;)
      folder = folder.parent_path();
  }

 private:
  static constexpr int kTriesToClaim = 30;
  static constexpr std::array kPausesToRead{std::chrono::milliseconds{100}, std::chrono::milliseconds{900}};

  /// Calls `read`, and again after a pause if the system reports an error: file servers restart, and a full table of
  /// open files becomes free again.
  /// Errors  UnreadableObject for an error that a disk or a file system reports about this range.
  template <class Read>
  static std::invoke_result_t<Read> try_to_read(const StoredRange& range, Read&& read) {
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
  /// True for the errors that disks and file systems report for lost sectors and wrong checksums. File servers also
  /// report some of these while they do not answer.
  static bool may_be_damage(int reason) {
    static constexpr std::array kReasons{EIO, ESTALE, EBADMSG, EUCLEAN, EILSEQ, ENODATA, EREMOTEIO};
    return std::ranges::find(kReasons, reason) != kReasons.end();
  }

  /// Takes the lock on `.owner`. Returns false if the file system has no locks.
  /// Errors  `storage` if another process holds the lock.
  bool lock_owner(const File& owner) const {
    // The holder may be a killed process that has not ended yet: try for a while.
    for (int tries = 0; ::flock(owner.descriptor(), LOCK_EX | LOCK_NB) != 0; ++tries) {
      if (errno != EWOULDBLOCK) return false;
      if (tries == kTriesToClaim)
        throw Error{Errc::storage, path_.string() + " is in use by " +
                                       first_line_of(read_file(owner.path(), Errc::storage, 200)) +
                                       ": wait for it to end, or choose another place"};
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
    }
    return true;
  }

  /// Removes the name `.owner` if the file has other names too, as `cp -al` makes them: writing to `.owner` must not
  /// change another folder's file. Only the process that holds the file's lock removes the name.
  void remove_shared_owner(const std::filesystem::path& path) const {
    struct ::stat status {};
    if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_nlink < 2) return;
    const auto shared = File::open(path, Errc::storage);
    lock_owner(shared);
    if (shared.is_at(path) && ::unlink(path.c_str()) != 0) throw file_error(Errc::storage, "cannot remove", path);
  }

  static std::string first_line_of(const std::string& text) { return text.substr(0, text.find('\n')); }

  static std::filesystem::path without_slash(const std::filesystem::path& path) {
    return path.has_filename() || !path.has_relative_path() ? path : path.parent_path();
  }

  /// Calls `visit_entry` for each entry of the folder. Returns the error that ended this early, if any.
  template <class Visit>
  static std::error_code each_entry(const std::filesystem::path& folder, Visit&& visit_entry) {
    std::error_code error;
    std::filesystem::directory_iterator entries{folder, error};
    for (; !error && entries != std::filesystem::directory_iterator{}; entries.increment(error)) visit_entry(*entries);
    return error;
  }

  /// Removes half-written files of killed writers, in this folder and in the folders directly below. Looks no deeper,
  /// and skips folders that this user may not read: the files there belong to other programs.
  void sweep() const {
    std::vector<std::filesystem::path> folders{path_};
    each_entry(path_, [&](const auto& entry) {
      std::error_code gone;
      if (entry.is_directory(gone) && !entry.is_symlink(gone)) folders.push_back(entry.path());
    });
    for (const auto& folder : folders)
      each_entry(folder, [](const auto& entry) {
        if (detail::TemporaryFile::is_temporary(entry.path().filename().string()))
          detail::TemporaryFile::unlink_if_left(entry.path());
      });
  }

  /// Calls `visit_file` with the name and the size of each regular file whose name begins with `prefix`. Looks at
  /// no other files, and follows no symbolic link to a folder.
  template <class Visit>
  void visit(const std::filesystem::path& folder, const std::string& prefix, Visit&& visit_file) const {
    const auto error = each_entry(folder, [&](const auto& entry) {
      const auto name = entry.path().lexically_relative(path_).generic_string();
      if (!name.starts_with(prefix) && !prefix.starts_with(name + '/')) return;
      const auto status = status_of(entry.path(), name);
      if (!status) return;  // another process has removed it
      if (S_ISDIR(status->st_mode)) return visit(entry.path(), prefix, visit_file);
      if (!name.starts_with(prefix) || entry.path().filename().string().starts_with('.')) return;
      std::error_code dangling;
      if (S_ISREG(status->st_mode))
        visit_file(name, static_cast<std::uint64_t>(status->st_size));
      else if (S_ISLNK(status->st_mode) && entry.is_regular_file(dangling))
        visit_file(name, std::uint64_t{entry.file_size(dangling)});
    });
    if (error && error != std::errc::no_such_file_or_directory)
      throw Error{Errc::storage, "cannot list " + folder.string() + ": " + error.message() +
                                     (folder == path_ ? "" : "; if this lasts, move that folder to another place")};
  }

  /// Returns none if there is no such file.
  static std::optional<struct ::stat> status_of(const std::filesystem::path& path, const std::string& name) {
    return try_to_read(
        {.name = name}, [&]() -> std::optional<struct ::stat> {
          struct ::stat status {};
          if (!failpoint_fails("folder.examine") && ::lstat(path.c_str(), &status) == 0) return status;
          if (errno == ENOENT) return std::nullopt;
          throw file_error(Errc::storage, "cannot examine", path);
        });
  }

  std::filesystem::path path_of(const std::string& name) const {
    const std::filesystem::path relative{name};
    const auto leaves = [](const std::filesystem::path& part) { return part == ".." || part == "."; };
    if (name.empty() || relative.is_absolute() || std::any_of(relative.begin(), relative.end(), leaves))
      throw Error{Errc::storage, "\"" + name + "\" is not a valid name of an object in " + path_.string()};
    return path_ / relative;
  }

  /// Makes the folder and its parents, so that they survive a loss of power.
  static void make_folder(const std::filesystem::path& folder) {
    std::error_code error;
    if (folder.empty() || std::filesystem::is_directory(folder, error)) return;
    const auto above = folder.has_parent_path() && folder.parent_path() != folder ? folder.parent_path() : ".";
    make_folder(above);
    if (failpoint_fails("io") || (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST))
      throw file_error(Errc::storage, "cannot make the folder", folder);
    detail::sync_folder(above, folder);
  }

  /// Makes the folders of an object. The storage's own folder may be a symbolic link; the folders below it may not.
  void make_folder_for(const std::filesystem::path& object) const {
    const auto folder = object.parent_path();
    if (folder == path_) return make_folder(folder);
    make_folder_for(folder);
    if (make_subfolder(folder)) detail::sync_folder(folder.parent_path(), folder);
  }

  /// Warns if other users may write to the folder: they can replace and remove its files.
  void warn_if_world_writable() const {
    struct ::stat folder {};
    if (::stat(path_.c_str(), &folder) != 0 || (folder.st_mode & S_IWOTH) == 0) return;
    const bool is_of_stranger = folder.st_uid != ::geteuid() && folder.st_uid != 0;
    if ((folder.st_mode & S_ISVTX) == 0)
      Log{0}.warn("by its permissions, every user of this machine may replace and remove the files in " +
                  path_.string() + ": take write access from others (chmod o-w) where the file system keeps " +
                  "permissions, or choose another folder if others use this machine");
    else if (is_of_stranger)
      Log{0}.warn(path_.string() +
                  " belongs to another user, who may replace and remove its files, and all users may "
                  "write to it: choose a folder of your own");
  }

  std::filesystem::path path_;
  std::optional<File> owner_;
};

}  // namespace ddpxx
