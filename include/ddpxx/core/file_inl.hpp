// ddpxx/core/file_inl.hpp — definitions of file.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <algorithm>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/each_entry.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/failpoint.hpp>
#include <ddpxx/core/file.hpp>

namespace ddpxx {

DDPXX_INLINE FileError file_error(Errc code, std::string_view operation, const std::filesystem::path& path) {
  const int reason = errno;
  return {code,
          std::string{operation} + ' ' + path.string() + ": " + std::generic_category().message(reason) + " (errno " +
              std::to_string(reason) + ')',
          reason};
}

DDPXX_INLINE void File::sync() {
  if (failpoint_fails("io") || ::fsync(descriptor()) != 0) throw file_error(code_, "cannot bring to the disk", path_);
}

DDPXX_INLINE File File::open(const std::filesystem::path& path, Errc code) {
  File file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK), path, code};
  if (failpoint_fails("io") || !file.descriptor_) throw file_error(code, "cannot open", path);
  if (!S_ISREG(file.status().st_mode)) throw Error{code, "cannot read " + path.string() + ": it is not a regular file"};
  return file;
}

DDPXX_INLINE std::optional<File> File::create(const std::filesystem::path& path, Errc code) {
  if (failpoint_fails("io")) throw file_error(code, "cannot create", path);
  File file{::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666), path, code};
  if (!file.descriptor_ && errno == EEXIST) return std::nullopt;
  if (!file.descriptor_) throw file_error(code, "cannot create", path);
  return file;
}

DDPXX_INLINE File File::open_to_append(const std::filesystem::path& path, Errc code) {
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  File file{::open(path.c_str(), kFlags, 0666), path, code};
  const auto refuse = [&](const std::string& what) {
    return Error{code, "refusing to write to " + path.string() + ": it is " + what +
                           ", and the text would go to another file; remove it"};
  };
  if (!file.descriptor_ && errno == ELOOP) throw refuse("a symbolic link");
  if (!file.descriptor_) throw file_error(code, "cannot write to", path);
  const auto status = file.status();
  if (!S_ISREG(status.st_mode)) throw Error{code, "cannot write to " + path.string() + ": it is not a regular file"};
  if (status.st_nlink > 1) throw refuse("a hard link to a file that has other names");
  return file;
}

DDPXX_INLINE struct ::stat File::status() const {
  struct ::stat status {};
  if (::fstat(descriptor(), &status) != 0) throw file_error(code_, "cannot examine", path_);
  return status;
}

DDPXX_INLINE bool detail::is_name_of(const struct ::stat& file, const std::filesystem::path& path) {
  struct ::stat there {};
  return ::lstat(path.c_str(), &there) == 0 && there.st_dev == file.st_dev && there.st_ino == file.st_ino;
}

DDPXX_INLINE bool File::is_at(const std::filesystem::path& path) const { return detail::is_name_of(status(), path); }

DDPXX_INLINE std::size_t File::read(std::span<std::byte> buffer) {
  std::size_t filled = 0;
  while (filled < buffer.size()) {
    const auto count =
        failpoint_fails("io") ? -1 : ::read(descriptor(), buffer.data() + filled, buffer.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw file_error(code_, "cannot read", path_);
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  return filled;
}

DDPXX_INLINE std::size_t File::read_at(std::size_t offset, std::span<std::byte> buffer) {
  std::size_t filled = 0;
  while (filled < buffer.size()) {
    const auto count = failpoint_fails("io") ? -1
                                             : ::pread(descriptor(), buffer.data() + filled, buffer.size() - filled,
                                                       static_cast<off_t>(offset + filled));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw file_error(code_, "cannot read", path_);
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  return filled;
}

DDPXX_INLINE void File::write(Bytes bytes) {
  while (!bytes.empty()) {
    const auto wanted = std::min(bytes.size(), kStartWriting);
    const auto count = failpoint_fails("io") ? -1 : ::write(descriptor(), bytes.data(), wanted);
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) errno = EIO;  // the system reports no error here, and another call would return 0 again
    if (count <= 0) throw file_error(code_, "cannot write", path_).with("bytes_left", bytes.size());
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    not_started_ += static_cast<std::size_t>(count);
    if (not_started_ < kStartWriting) continue;
    not_started_ = 0;
    ::sync_file_range(descriptor(), 0, 0, SYNC_FILE_RANGE_WRITE);  // advice; sync() is what counts and what reports
  }
}

DDPXX_INLINE void File::write_at(std::size_t offset, Bytes bytes) {
  while (!bytes.empty()) {
    const auto count =
        failpoint_fails("io") ? -1 : ::pwrite(descriptor(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) errno = EIO;  // the system reports no error here, and another call would return 0 again
    if (count <= 0) throw file_error(code_, "cannot write", path_).with("bytes_left", bytes.size());
    offset += static_cast<std::size_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

DDPXX_INLINE std::string read_file(const std::filesystem::path& path, Errc code, std::size_t max_bytes) {
  auto file = File::open(path, code);
  std::string text;
  const auto append = [&](std::size_t wanted) {
    const auto before = text.size();
    text.resize(before + std::min(wanted, max_bytes - before));
    text.resize(before + file.read(std::as_writable_bytes(std::span{text}.subspan(before))));
    return text.size() > before;
  };
  const auto size = file.size();
  append(size);
  while (size == 0 && append(4096)) {  // the files of /proc say that they are empty
  }
  return text;
}

DDPXX_INLINE bool make_subfolder(const std::filesystem::path& folder) {
  struct ::stat there {};
  if (::lstat(folder.c_str(), &there) != 0) {
    if (failpoint_fails("io") || (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST))
      throw file_error(Errc::storage, "cannot make the folder", folder);
    if (::lstat(folder.c_str(), &there) != 0) throw file_error(Errc::storage, "cannot examine", folder);
    if (S_ISDIR(there.st_mode)) return true;
  }
  if (S_ISLNK(there.st_mode))
    throw Error{Errc::storage, "refusing to write below " + folder.string() +
                                   ": it is a symbolic link to another folder; remove the link"};
  if (!S_ISDIR(there.st_mode))
    throw Error{Errc::storage, "cannot make the folder " + folder.string() + ": a file of that name is there"};
  return false;
}

namespace detail {

DDPXX_INLINE TemporaryFile::TemporaryFile(const std::filesystem::path& target) : file_{create_beside(target)} {}

DDPXX_INLINE TemporaryFile::~TemporaryFile() {
  if (!published_) ::unlink(file_.path().c_str());
}

DDPXX_INLINE void TemporaryFile::publish(const std::filesystem::path& target) {
  if (failpoint_fails("io") || std::rename(file_.path().c_str(), target.c_str()) != 0) {
    const int reason = errno;
    // Over a network, the answer to a rename that was made may get lost, and the second request finds no file.
    if (reason != ENOENT || !is_this(target)) {
      errno = reason;
      throw file_error(Errc::storage, "cannot rename " + file_.path().string() + " to", target);
    }
  }
  published_ = true;
}

DDPXX_INLINE bool TemporaryFile::publish_new(const std::filesystem::path& target) {
  if (!failpoint_fails("io") && !failpoint_fails("file.take_name") && ::link(file_.path().c_str(), target.c_str()) == 0)
    return true;                                // the temporary name goes with this object
  if (errno == EEXIST) return is_this(target);  // over a network, the answer to a link that was made may get lost
  if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS) return rename_to_new(target);
  throw file_error(Errc::storage, "cannot link " + file_.path().string() + " to", target);
}

DDPXX_INLINE bool TemporaryFile::is_this(const std::filesystem::path& target) const { return file_.is_at(target); }

DDPXX_INLINE void TemporaryFile::sweep_beside(const std::filesystem::path& target,
                                              const std::filesystem::path& folder) {
  each_entry(folder, [&](const auto& entry) {
    if (is_temporary_of(target, entry.path().filename().string())) unlink_if_left(entry.path());
  });
}

DDPXX_INLINE void TemporaryFile::unlink_if_left(const std::filesystem::path& path) {
  // A network file system may lock only what is open for writing.
  Descriptor left{::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
  if (!left) left = Descriptor{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
  if (!left || ::flock(left.get(), LOCK_EX | LOCK_NB) != 0) return;
  // Its writer may have renamed the file before the lock, and begun another one of that name.
  struct ::stat locked {};
  if (::fstat(left.get(), &locked) == 0 && is_name_of(locked, path)) ::unlink(path.c_str());
}

DDPXX_INLINE bool TemporaryFile::is_temporary(std::string_view name) {
  if (!name.starts_with('.') || !name.ends_with(kSuffix)) return false;
  name.remove_suffix(kSuffix.size());
  const auto number = name.find_last_of('.') + 1;
  return number > 1 && number < name.size() && name.find_first_not_of("0123456789-", number) == std::string_view::npos;
}

DDPXX_INLINE bool TemporaryFile::is_temporary_of(const std::filesystem::path& target, std::string_view name) {
  const auto front = prefix(target);
  return is_temporary(name) && name.starts_with(front) && name.find('.', front.size()) == name.rfind('.');
}

DDPXX_INLINE bool TemporaryFile::rename_to_new(const std::filesystem::path& target) {
  if (!failpoint_fails("file.take_name") &&
      ::renameat2(AT_FDCWD, file_.path().c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) == 0) {
    published_ = true;
    return true;
  }
  const int reason = errno;
  // Over a network, the answer to a rename that was made may get lost; made again, it finds one of the two names.
  if ((reason == EEXIST || reason == ENOENT) && is_this(target)) return published_ = true;
  if (reason == EEXIST) return false;
  errno = reason;
  if (errno == EINVAL || errno == ENOSYS)
    throw Error{Errc::storage, "cannot create " + target.string() +
                                   ": its file system supports neither hard links nor renameat2(2) with "
                                   "RENAME_NOREPLACE, so that two programs could replace each other's files; choose "
                                   "a folder on another file system"};
  throw file_error(Errc::storage, "cannot rename " + file_.path().string() + " to", target);
}

DDPXX_INLINE std::string TemporaryFile::prefix(const std::filesystem::path& target) {
  return '.' + target.filename().string() + '.';
}

DDPXX_INLINE File TemporaryFile::create_beside(const std::filesystem::path& target) {
  // Equal process ids meet where nodes share a disk: the number behind tells them apart.
  const auto stem = prefix(target) + std::to_string(::getpid()) + '-';
  constexpr int kMostRefused = 100;
  for (std::int64_t number = 0, refused = 0; refused < kMostRefused; ++number) {
    auto name = stem + std::to_string(number);
    name += kSuffix;
    if (auto file = File::create(target.parent_path() / name, Errc::storage)) {
      // Another process that swept this folder may have found the file before it was locked, and removed it.
      const bool lost = ::flock(file->descriptor(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
      if (!lost && file->status().st_nlink > 0) return std::move(*file);
      ++refused;
    }
  }
  throw Error{Errc::storage, "cannot make a temporary file beside " + target.string() +
                                 ": its file system says of new files that they are locked or removed; choose a folder "
                                 "on another file system"};
}

DDPXX_INLINE void sync_folder(const std::filesystem::path& folder, const std::filesystem::path& target) {
  const Descriptor opened{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (opened && !failpoint_fails("io") && (::fsync(opened.get()) == 0 || errno == EINVAL)) return;
  throw file_error(Errc::storage, "it is in place, but may be lost with the power:", target);
}

inline std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path{"."};
}

/// Writes a file under a temporary name beside `path`, brings it to the disk, and gives it to `publish`.
template <std::invocable<File&> WriteContent, std::invocable<TemporaryFile&> Publish>
void write_beside(const std::filesystem::path& path, WriteContent&& write_content, Publish&& publish) {
  TemporaryFile::sweep_beside(path, folder_of(path));
  TemporaryFile temporary{path};
  failpoint("file.before_write");
  write_content(temporary.file());
  failpoint("file.after_write");
  temporary.file().sync();
  failpoint("file.after_fsync");
  publish(temporary);
  failpoint("file.after_publish");
  sync_folder(folder_of(path), path);
}

}  // namespace detail

DDPXX_INLINE void write_file_atomic(const std::filesystem::path& path,
                                    const std::function<void(File&)>& write_content) {
  detail::write_beside(path, write_content, [&path](auto& temporary) { temporary.publish(path); });
}

DDPXX_INLINE void write_file_atomic(const std::filesystem::path& path, std::span<const Bytes> parts) {
  write_file_atomic(path, [parts](File& file) {
    for (const auto part : parts) file.write(part);
  });
}

DDPXX_INLINE void write_file_atomic(const std::filesystem::path& path, std::string_view text) {
  write_file_atomic(path, [text](File& file) { file.write(bytes_of(text)); });
}

DDPXX_INLINE bool create_file_atomic(const std::filesystem::path& path, Bytes content) {
  bool made = false;
  detail::write_beside(
      path, [content](File& file) { file.write(content); },
      [&](auto& temporary) { made = temporary.publish_new(path); });
  return made;
}

}  // namespace ddpxx
