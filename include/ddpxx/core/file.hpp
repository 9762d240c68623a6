// ddpxx/core/file.hpp — the seam to the file system: read a file whole, replace a file atomically.
// Every error names the operation, the path and the system's reason.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <utility>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

using Bytes = std::span<const std::byte>;

inline Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span{text}); }

/// An error that the system has reported.
class FileError final : public Error {
 public:
  FileError(Errc code, std::string text, int reason) : Error{code, std::move(text)}, reason_{reason} {}

  /// Its errno.
  int reason() const noexcept { return reason_; }

  /// As `Error::with`. The result is still a FileError, so that `throw error.with(...)` throws one.
  FileError& with(std::string_view fact, const auto& value) {
    Error::with(fact, value);
    return *this;
  }

 private:
  int reason_;
};

/// An error with the text "OPERATION PATH: REASON (errno N)"; the reason is what errno holds now.
FileError file_error(Errc code, std::string_view operation, const std::filesystem::path& path);

/// An open regular file. Its errors carry the code that it was opened with.
class File {
 public:
  /// Opens for reading. A pipe is refused: it could make the reader wait for ever.
  static File open(const std::filesystem::path& path, Errc code);

  /// Makes a new file, for writing; none where the path is taken, be it by a symbolic link.
  static std::optional<File> create(const std::filesystem::path& path, Errc code);

  /// Opens a file that outlives a program, such as a log, to write at its end; makes it where it is missing. Other
  /// users may have write access to its folder, so that a symbolic link, a second name of a file that lies elsewhere,
  /// and everything but a regular file is refused: the bytes would go to another file.
  static File open_to_append(const std::filesystem::path& path, Errc code);

  int descriptor() const noexcept { return descriptor_.get(); }
  const std::filesystem::path& path() const noexcept { return path_; }
  std::size_t size() const { return static_cast<std::size_t>(status().st_size); }
  struct ::stat status() const;
  /// Whether the path is a name of this file; a symbolic link to the file is none.
  bool is_at(const std::filesystem::path& path) const;

  /// Reads until `buffer` is full or the file ends; returns the number of bytes.
  std::size_t read(std::span<std::byte> buffer);

  /// Reads from `offset` on until `buffer` is full or the file ends; returns the number of bytes.
  std::size_t read_at(std::size_t offset, std::span<std::byte> buffer);

  /// Appends all bytes. The disk begins with them while the rest of a large file is still coming, so that sync() has
  /// less to wait for.
  void write(Bytes bytes);

  /// Overwrites bytes that were written before.
  void write_at(std::size_t offset, Bytes bytes);

  /// Waits until the disk has the bytes. Never try it again after an error: the kernel drops the pages that it could
  /// not write and reports success the second time.
  void sync();

 private:
  File(int descriptor, std::filesystem::path path, Errc code)
      : descriptor_{descriptor}, path_{std::move(path)}, code_{code} {}

  static constexpr std::size_t kStartWriting = 8U << 20U;

  Descriptor descriptor_;
  std::filesystem::path path_;
  Errc code_;
  std::size_t not_started_ = 0;  ///< Bytes appended whose writing to disk was not requested yet.
};

/// The file's bytes, or its first `max_bytes`.
/// Errors  `code`, naming the path and the reason.
std::string read_file(const std::filesystem::path& path, Errc code,
                      std::size_t max_bytes = std::numeric_limits<std::size_t>::max());

/// Replaces the file, or makes it, by what `write_content(File&)` writes; nothing but that file grows in memory.
/// A reader finds the old file or the new one, whole, at any moment, even after a kill or a loss of power.
/// Temporary files that killed writers of this file have left are removed first.
/// Errors  `storage`; the old file is then intact, unless the text says that the new one is in place.
void write_file_atomic(const std::filesystem::path& path, const std::function<void(File&)>& write_content);

/// The same for content at hand: the parts are written one after the other, and never joined in memory.
void write_file_atomic(const std::filesystem::path& path, std::span<const Bytes> parts);

void write_file_atomic(const std::filesystem::path& path, std::string_view text);

/// Makes the file with this content unless one of its name is there: then false. Of many writers exactly one makes it,
/// and no reader sees a part of it.
/// Errors  `storage`.
bool create_file_atomic(const std::filesystem::path& path, Bytes content);

/// Makes the folder where it is missing; the one above it must be there. A symbolic link in its place is refused: other
/// users may have write access to the folder above, and the link would lead what is written here to another folder.
/// The check is made once: a user who may rename entries of the folder above can still replace the folder by a link
/// before the caller writes there. Only a folder above that other users cannot write to, or one with the sticky bit,
/// prevents that.
/// Returns whether the folder is new.
/// Errors  `storage`.
bool make_subfolder(const std::filesystem::path& folder);

namespace detail {

/// Whether the path is a name of the file with this status; a symbolic link to the file is none.
bool is_name_of(const struct ::stat& file, const std::filesystem::path& path);

/// A file under a temporary name. The destructor removes this name; a published file stays under the name of its
/// target.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target);
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile();

  File& file() noexcept { return file_; }

  void publish(const std::filesystem::path& target);

  /// The same, unless the name is taken: then false.
  bool publish_new(const std::filesystem::path& target);

  bool is_this(const std::filesystem::path& target) const;

  /// Removes the temporary files of `target` that no running process has locked; the lock of a killed process is gone.
  static void sweep_beside(const std::filesystem::path& target, const std::filesystem::path& folder);
  static void unlink_if_left(const std::filesystem::path& path);

  static bool is_temporary(std::string_view name);

 private:
  static constexpr std::string_view kSuffix = ".tmp";

  static bool is_temporary_of(const std::filesystem::path& target, std::string_view name);

  /// For file systems without hard links, such as FAT and many of FUSE.
  bool rename_to_new(const std::filesystem::path& target);

  static std::string prefix(const std::filesystem::path& target);

  static File create_beside(const std::filesystem::path& target);

  File file_;
  bool published_ = false;
};

/// Brings the folder's entries to the disk (fsync). EINVAL is not an error: the file system does not support this.
void sync_folder(const std::filesystem::path& folder, const std::filesystem::path& target);

}  // namespace detail

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/core/file_inl.hpp>
#endif
