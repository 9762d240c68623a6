// ddpxx/storage/folder.hpp — objects as files of a folder.
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

/// A folder of a local or a mounted disk. Names that would leave it are refused.
class Folder final : public Storage {
 public:
  explicit Folder(const std::filesystem::path& path) : path_{without_slash(path.empty() ? "." : path)} {}

  std::string whole_name(const std::string& name) const override { return (path_ / name).string(); }

  void prepare() override {
    make_folder(path_);
    warn_of_strangers();
    // Named as a temporary file, so that the next claim sweeps away what a killed start has left of it.
    const auto probe = path_ / (".probe." + std::to_string(::getpid()) + ".tmp");
    std::error_code ignored;
    std::filesystem::remove(probe, ignored);
    const bool made = create_file_atomic(probe, bytes_of("objects can be written here\n"));
    std::filesystem::remove(probe, ignored);
    if (!made) throw Error{Errc::storage, "cannot write to " + path_.string() + ": its files do not last"};
  }

  /// By a lock on `.owner`, which the system gives free when its holder ends, however it ends.
  bool claim(const std::string& owner) override {
    const auto path = path_ / ".owner";
    owner_ = File::open_to_append(path, Errc::storage);
    // One that was killed may still be ending.
    for (int tries = 0; ::flock(owner_->descriptor(), LOCK_EX | LOCK_NB) != 0; ++tries) {
      if (errno != EWOULDBLOCK) return false;  // a file system without locks
      if (tries == kTriesToClaim)
        throw Error{Errc::storage, path_.string() + " is in use by " +
                                       first_line_of(read_file(path, Errc::storage, 200)) +
                                       ": wait for it to end, or choose another place"};
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
    }
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
    // Of a folder that a killed writer had made nobody knows whether it would last.
    if (path.parent_path() != path_) detail::sync_folder(path.parent_path().parent_path(), path);
    return made;
  }

  void read(const std::string& name, std::uint64_t offset, std::span<std::byte> room) override {
    const auto path = path_of(name);
    const auto count = try_to_read([&] { return File::open(path, Errc::storage).read_at(offset, room); });
    if (count < room.size())
      throw Error{Errc::storage, "cannot read " + path.string() + ": it ends after " + std::to_string(offset + count) +
                                     " bytes, and " + std::to_string(offset + room.size()) + " are expected"};
  }

  std::optional<std::string> read_text(const std::string& name, std::uint64_t max_bytes) override {
    const auto path = path_of(name);
    if (std::error_code error; !std::filesystem::exists(path, error) && !error) return std::nullopt;
    auto text = try_to_read([&] { return read_file(path, Errc::storage, max_bytes + 1); });
    if (text.size() > max_bytes)
      throw Error{Errc::storage,
                  "cannot read " + path.string() + ": it has more than " + std::to_string(max_bytes) + " bytes"};
    return text;
  }

  std::vector<StoredObject> list(const std::string& front) override {
    std::vector<StoredObject> found;
    visit(path_, front, [&](const std::filesystem::directory_entry& entry, const std::string& name) {
      std::error_code gone;  // another process may be removing it
      const auto size = entry.file_size(gone);
      if (!gone && name.starts_with(front) && !entry.path().filename().string().starts_with('.'))
        found.push_back({name, size});
    });
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return found;
  }

  void remove(const std::string& name) override {
    const auto path = path_of(name);
    failpoint("folder.before_remove");
    if ((failpoint_fails("io") || ::unlink(path.c_str()) != 0) && errno != ENOENT)
      throw file_error(Errc::storage, "cannot remove", path);
    failpoint("folder.after_remove");
    // A folder goes with its last file; one that has others stays.
    for (auto folder = path.parent_path(); folder != path_ && ::rmdir(folder.c_str()) == 0;)
      folder = folder.parent_path();
  }

 private:
  static constexpr int kTriesToClaim = 30;
  static constexpr int kTriesToRead = 3;

  /// Reads, and once more after a pause where the system reports an error, which may pass: file servers restart, and
  /// tables of open files become free.
  /// Errors  UnreadableObject where it is the disk or the file system that fails.
  template <class Read>
  static std::invoke_result_t<Read> try_to_read(Read&& read) {
    for (int tries = 1;; ++tries) {
      try {
        return read();
      } catch (const FileError& error) {
        if (tries == kTriesToRead && is_damage(error.reason())) throw UnreadableObject{error.what()};
        if (tries == kTriesToRead || error.reason() == ENOENT || error.reason() == EACCES) throw;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds{100});
    }
  }
  /// What disks, file systems and file servers report for a file that they have lost or cannot prove.
  static bool is_damage(int reason) {
    static constexpr std::array kReasons{EIO, ESTALE, EBADMSG, EUCLEAN, EILSEQ, ENODATA, EREMOTEIO};
    return std::ranges::find(kReasons, reason) != kReasons.end();
  }

  static std::string first_line_of(const std::string& text) { return text.substr(0, text.find('\n')); }

  static std::filesystem::path without_slash(const std::filesystem::path& path) {
    return path.has_filename() || !path.has_relative_path() ? path : path.parent_path();
  }

  /// Calls `visit_entry` for what is in the folder; returns why that ended early.
  template <class Visit>
  static std::error_code each_entry(const std::filesystem::path& folder, Visit&& visit_entry) {
    std::error_code error;
    std::filesystem::directory_iterator entries{folder, error};
    for (; !error && entries != std::filesystem::directory_iterator{}; entries.increment(error)) visit_entry(*entries);
    return error;
  }

  /// Unlinks what killed writers left half-done here and in the folders here. Below those, and where this user may not
  /// look, lie other programs' files.
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

  /// Visits the regular files below `folder`; of folders, only those that may hold names which begin with `front`. A
  /// symbolic link in place of such a folder is refused: what lies behind it is not this place's, and cannot be listed.
  template <class Visit>
  void visit(const std::filesystem::path& folder, const std::string& front, Visit&& visit_file) const {
    const auto error = each_entry(folder, [&](const auto& entry) {
      const auto name = entry.path().lexically_relative(path_).generic_string();
      std::error_code gone;
      if (entry.is_regular_file(gone))
        visit_file(entry, name);
      else if (!front.empty() && name.starts_with(front) && entry.is_symlink(gone))
        throw Error{Errc::storage, "cannot list " + folder.string() + ": " + entry.path().string() +
                                       " is a symbolic link, and a folder is expected: replace the link by the folder "
                                       "itself, or choose another place"};
      else if (const auto inside = name + '/'; (inside.starts_with(front) || front.starts_with(inside)) &&
                                               entry.is_directory(gone) && !entry.is_symlink(gone))
        visit(entry.path(), front, visit_file);
    });
    if (error && error != std::errc::no_such_file_or_directory)
      throw Error{Errc::storage, "cannot list " + folder.string() + ": " + error.message()};
  }

  std::filesystem::path path_of(const std::string& name) const {
    const std::filesystem::path relative{name};
    const auto leaves = [](const std::filesystem::path& part) { return part == ".." || part == "."; };
    if (name.empty() || relative.is_absolute() || std::any_of(relative.begin(), relative.end(), leaves))
      throw Error{Errc::storage, "\"" + name + "\" is no name of an object in " + path_.string()};
    return path_ / relative;
  }

  /// Makes the folder and those above it, so that they outlast a loss of power as well.
  static void make_folder(const std::filesystem::path& folder) {
    std::error_code error;
    if (folder.empty() || std::filesystem::is_directory(folder, error)) return;
    const auto above = folder.has_parent_path() && folder.parent_path() != folder ? folder.parent_path() : ".";
    make_folder(above);
    if (failpoint_fails("io") || (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST))
      throw file_error(Errc::storage, "cannot make the folder", folder);
    detail::sync_folder(above, folder);
  }

  /// Makes the folders of an object. The folder of this storage may be a symbolic link, those below it may not.
  void make_folder_for(const std::filesystem::path& object) const {
    const auto folder = object.parent_path();
    if (folder == path_) return make_folder(folder);
    make_folder_for(folder);
    if (make_subfolder(folder)) detail::sync_folder(folder.parent_path(), folder);
  }

  /// Other users who may write to the folder can replace and remove its files.
  void warn_of_strangers() const {
    struct ::stat folder {};
    if (::stat(path_.c_str(), &folder) != 0 || (folder.st_mode & S_IWOTH) == 0) return;
    const bool is_of_stranger = folder.st_uid != ::geteuid() && folder.st_uid != 0;
    if ((folder.st_mode & S_ISVTX) == 0)
      Log{0}.warn("every user of this machine may replace and remove the files in " + path_.string() +
                  ": take the right to write from others (chmod o-w), or choose another folder");
    else if (is_of_stranger)
      Log{0}.warn(path_.string() +
                  " belongs to another user, who may replace and remove its files, and all users may "
                  "write to it: choose a folder of your own");
  }

  std::filesystem::path path_;
  std::optional<File> owner_;
};

}  // namespace ddpxx
