// ddpxx/observe/row_file_inl.hpp — definitions of row_file.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <ios>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/failpoint.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/observe/row_file.hpp>

namespace ddpxx {

namespace detail {

/// The kind of the file system of an open file, as statfs(2) numbers them; 0 if the system does not tell.
inline std::uint32_t file_system_of(const Descriptor& file) {
  struct statfs status {};
  return ::fstatfs(file.get(), &status) == 0 ? static_cast<std::uint32_t>(status.f_type) : 0;
}

/// True for NFS, Ceph, Lustre, GPFS, BeeGFS and FUSE: the lock may be that of a machine that is lost.
inline bool has_locks_of_other_machines(std::uint32_t file_system) {
  static constexpr std::array<std::uint32_t, 6> kKinds{0x6969,     0x00C36400, 0x0BD00BD0,
                                                       0x47504653, 0x19830326, 0x65735546};
  return std::ranges::find(kKinds, file_system) != kKinds.end();
}

/// True for SMB: what one program has locked, no other one can read.
inline bool locks_out_readers(std::uint32_t file_system) {
  static constexpr std::array<std::uint32_t, 3> kKinds{0x517B, 0xFF534D42, 0xFE534D42};
  return std::ranges::find(kKinds, file_system) != kKinds.end();
}

/// Takes the lock of an open file; false if another process has it. True also where the file cannot be locked.
inline bool try_to_lock_rows(const Descriptor& file) {
  if (locks_out_readers(file_system_of(file))) return true;
  const bool fails = failpoint_fails("row_file.lock") || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0;
  return !fails || errno != EWOULDBLOCK;
}

}  // namespace detail

DDPXX_INLINE Descriptor RowFile::open(const std::filesystem::path& path) {
  // Without O_NONBLOCK this would wait for a reader of a FIFO, and so would a write for a reader that has stopped.
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK;
  Descriptor file{::open(path.c_str(), kFlags | O_CREAT | O_NOFOLLOW, 0666)};
  if (file || errno != ELOOP) return file;
  Descriptor target{::open(path.c_str(), kFlags)};
  if (target ? !is_regular(target) : errno != ENOENT) return target;
  errno = ELOOP;
  return {};
}

DDPXX_INLINE bool RowFile::is_regular(const Descriptor& file) {
  struct stat status {};
  return ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode);
}

DDPXX_INLINE bool RowFile::is_regular() const { return is_regular(file_); }

DDPXX_INLINE bool RowFile::is_in_place() const {
  struct stat mine {};
  return ::fstat(file_.get(), &mine) == 0 && detail::is_name_of(mine, path_);
}

DDPXX_INLINE bool RowFile::is_of_this_kind() const {
  std::string front(format_.start.size(), '\0');
  // Another process may have replaced the file by a FIFO: O_NONBLOCK keeps this open() from waiting for a writer.
  const Descriptor file{::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  front.resize(static_cast<std::size_t>(std::max<ssize_t>(::read(file.get(), front.data(), front.size()), 0)));
  return format_.start.starts_with(front);  // a kill may have cut the first row
}

DDPXX_INLINE bool RowFile::lacks_header() const {
  if (header_.empty()) return false;
  struct stat status {};
  return is_regular() ? ::fstat(file_.get(), &status) == 0 && status.st_size == 0 : !has_written_;
}

DDPXX_INLINE std::string RowFile::first_line() const {
  std::string line;
  if (is_regular()) std::getline(std::ifstream{path_, std::ios::binary} >> std::noskipws, line);
  return line;
}

DDPXX_INLINE RowFile::RowFile(std::filesystem::path path, const RowFormat& format, Log log)
    : path_{std::move(path)}, format_{format}, log_{log} {
  std::error_code failure;
  if (path_.has_parent_path()) std::filesystem::create_directories(path_.parent_path(), failure);
  file_ = open(path_);
  if (!file_ && errno == ELOOP)
    throw Error{Errc::config, "cannot open the " + std::string{format_.kind} + ' ' + path_.string() +
                                  ": it is a symbolic link, which other users may have put there, and does not lead "
                                  "to a device or a FIFO; name the file itself, or remove the link"};
  if (!file_ && errno == ENXIO)
    throw Error{Errc::config, "cannot open the " + std::string{format_.kind} + ' ' + path_.string() +
                                  ": it is a FIFO that no program reads; start the reader first, or name a file"};
  if (!file_) throw file_error(Errc::config, "cannot open the " + std::string{format_.kind}, path_);
  if (!is_regular()) return;
  path_ = std::filesystem::absolute(path_);  // the working folder may change
  if (!is_of_this_kind())
    throw Error{Errc::config, path_.string() + " is not a " + std::string{format_.kind} + ": it does not begin with " +
                                  std::string{format_.start} +
                                  ", and is left as it is; name another file, or remove this one"};
}

DDPXX_INLINE void RowFile::wait_for_lock() const {
  using std::chrono::steady_clock;
  // The holder may be a killed process that has not ended yet.
  constexpr std::chrono::seconds kEndOfProcess{3}, kEndOfLostMachine{120};
  const bool may_be_lost = detail::has_locks_of_other_machines(detail::file_system_of(file_));
  auto patience = kEndOfProcess;
  for (const auto begun = steady_clock::now(); !detail::try_to_lock_rows(file_);
       std::this_thread::sleep_for(std::chrono::milliseconds{100})) {
    if (steady_clock::now() - begun < patience) continue;
    if (!may_be_lost || patience == kEndOfLostMachine)
      throw Error{Errc::config, path_.string() + " is in use by another run, and a " + std::string{format_.kind} +
                                    " has the rows of one run: wait for it to end (in this program: close or destroy "
                                    "its trainer), or name another file" +
                                    (may_be_lost ? "; if its machine is down, move the file away" : "")};
    patience = kEndOfLostMachine;
    log_.info(path_.string() + " is in use by another run: waiting up to " + std::to_string(patience.count()) +
              " s, since a file server holds the lock of a machine that is lost for about 90 s");
  }
}

DDPXX_INLINE bool RowFile::take() {
  do {
    if (!is_in_place()) reopen_replaced_file();
    if (!is_regular() || !is_in_place()) return false;
    wait_for_lock();
  } while (!is_in_place());  // the run that had the lock has moved or replaced the file
  return true;
}

DDPXX_INLINE void RowFile::release() {
  if (is_regular()) ::flock(file_.get(), LOCK_UN);
}

DDPXX_INLINE void RowFile::set_old_rows_aside() {
  has_begun_ = false;
  const bool is_ours = is_regular() && take();
  has_begun_ = true;
  if (is_ours && std::filesystem::file_size(path_) > 0) move_aside();
}

DDPXX_INLINE void RowFile::move_aside() {
  auto other = path_;
  std::error_code failure;
  for (int number = 1; std::filesystem::exists(std::filesystem::symlink_status(other, failure)); ++number)
    other.replace_filename(path_.stem().string() + '.' + std::to_string(number) + path_.extension().string());
  std::filesystem::rename(path_, other, failure);
  auto next = failure ? Descriptor{} : open(path_);
  if (!next) throw file_error(Errc::storage, "cannot move the rows of another run out of", path_);
  std::swap(file_, next);  // `next` keeps the lock of the old file, on which another run may wait
  wait_for_lock();
  log_.info("the rows of another run in " + path_.string() + " are now in " + other.string());
}

DDPXX_INLINE bool RowFile::is_of_another_run(std::int64_t step, std::int64_t saved_at) const {
  const auto first = first_line();
  std::ifstream rows{path_, std::ios::binary};
  for (std::string line; std::getline(rows, line);)
    if (const auto written = format_.time_of(first, line))
      return *written >= static_cast<double>(saved_at + 1) && format_.step_of(line).value_or(step + 1) <= step;
  return false;
}

DDPXX_INLINE void RowFile::resume_at(std::int64_t step, std::int64_t saved_at) {
  has_begun_ = false;
  const bool is_ours = is_regular() && take();
  has_begun_ = true;
  if (!is_ours) return;
  if (saved_at > 0 && is_of_another_run(step, saved_at)) return move_aside();
  std::int64_t num_removed = 0;
  write_file_atomic(path_, [&](File& kept) {
    std::ifstream rows{path_, std::ios::binary};
    if (!rows) throw file_error(Errc::storage, "cannot read", path_);
    std::string block;
    const auto pass_on = [&](std::size_t least) {
      if (block.size() < least) return;
      kept.write(bytes_of(block));
      block.clear();
    };
    // A kill may have cut a last line without a line end.
    for (std::string line; std::getline(rows, line) && (format_.shows_its_end || !rows.eof()); pass_on(1 << 16)) {
      if (line.ends_with('\r')) line.pop_back();  // Editors and version control on Windows end lines so.
      const auto row_step = format_.step_of(line);
      if (row_step && *row_step <= step) (block += line) += '\n';
      if (!row_step && !line.empty() && !rows.eof()) ++num_removed;
    }
    if (rows.bad()) throw file_error(Errc::storage, "cannot read", path_);
    pass_on(1);
  });
  if (num_removed > 0)
    log_.warn("removed from " + path_.string() + " what is not a row of a " + std::string{format_.kind} + ": " +
              std::to_string(num_removed) + (num_removed == 1 ? " line" : " lines"));
  auto next = open(path_);
  if (!next) throw file_error(Errc::storage, "cannot open the " + std::string{format_.kind}, path_);
  std::swap(file_, next);  // `next` keeps the lock of the old file, on which another run may wait
  wait_for_lock();
}

DDPXX_INLINE void RowFile::reopen_replaced_file() {
  std::error_code failure;
  std::filesystem::create_directories(path_.parent_path(), failure);
  auto file = open(path_);
  std::string failure_text;
  if (!file)
    failure_text = file_error(Errc::storage, "cannot open", path_).what();
  else if (!is_regular(file))
    failure_text = "what lies there now is not a regular file";
  else if (!is_of_this_kind())
    failure_text = "what lies there now is not a " + std::string{format_.kind} + " and is left as it is";
  else if (has_begun_ && !detail::try_to_lock_rows(file))
    failure_text = "another run writes to the file that lies there now";
  else
    file_ = std::move(file);
  if (!std::exchange(has_warned_of_loss_, true))
    log_.warn(path_.string() + " was removed or replaced while the run goes on; " +
              (failure_text.empty() ? "from now on the rows go to a new file" : "the rows are lost: " + failure_text));
}

DDPXX_INLINE void RowFile::append(std::string_view row) {
  if (!has_begun_) set_old_rows_aside();
  if (is_regular() && !is_in_place()) reopen_replaced_file();
  const std::string line = (lacks_header() ? header_ : "") + std::string{row};
  ssize_t size = 0;
  do size = ::write(file_.get(), line.data(), line.size());
  while (size < 0 && errno == EINTR);
  if (size == static_cast<ssize_t>(line.size())) {
    has_written_ = true;
    return;
  }
  const std::string failure_text = size < 0 ? file_error(Errc::storage, "cannot write", path_).what()
                                            : "cannot write " + path_.string() +
                                                  ": the disk or the quota is full, or the file has its "
                                                  "largest size (ulimit -f)";
  // Half a row would spoil the next one.
  if (size > 0 && is_regular()) {
    const off_t end = ::lseek(file_.get(), 0, SEEK_END);
    [[maybe_unused]] const int cut = ::ftruncate(file_.get(), end - size);
  }
  if (!std::exchange(has_warned_, true)) log_.warn(failure_text + "; training goes on without these rows");
}

}  // namespace ddpxx
