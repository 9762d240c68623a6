// ddpxx/observe/row_file.hpp — a file with one row for each event of a run, which a resumed run continues.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <ios>
#include <optional>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/log.hpp>

namespace ddpxx {

/// How the rows of a file look.
struct RowFormat {
  std::string_view kind;   ///< As errors call such a file.
  std::string_view start;  ///< A file that does not begin so is of another kind.
  /// The step of a row; none for a line that is no whole row.
  std::optional<std::int64_t> (*step_of)(std::string_view line);
  bool shows_its_end = false;  ///< step_of knows a whole row without its line end.
};

/// Appends rows; each row is one write of one whole line, so that a kill leaves at most a cut last line. A row that
/// cannot be written later on, because the disk is full for example, is lost with one warning: training goes on.
/// A file holds the rows of one run: those of an earlier one are moved to another file and never removed. A file that
/// was removed or replaced while the run goes on is made anew for the next row, with one warning.
class RowFile {
 public:
  /// Opens the file, and makes it and its folders where they are missing. What it holds stays until the run begins.
  /// Errors  `config`, naming the path and the reason: it cannot be opened, or is of another kind and holds something.
  RowFile(std::filesystem::path path, const RowFormat& format, Log log);

  /// Keeps the rows up to and including `step`, after which the run goes on, and cuts later ones and a half-written
  /// last one.
  /// Errors  `storage`; the file is then as it was.
  void resume_at(std::int64_t step);

  /// Begins a new run: the rows of an earlier run are moved from `metrics.jsonl` to `metrics.1.jsonl`, or the next
  /// number that is free.
  /// Errors  `storage`; the file is then as it was.
  void start_anew();

  /// Adds a line, which ends with a line end. A file that holds nothing gets the header first.
  void append(std::string_view line);

  /// The line, with its line end, that a file begins with; empty is none.
  void set_header(std::string header) { header_ = std::move(header); }

  /// The first line of the file, without its line end; empty where there is none.
  std::string first_line() const;

  const Log& log() const noexcept { return log_; }

 private:
  /// Opens the file, or makes it. A link, which another user may have put there, is followed only where it leads to a
  /// device or a FIFO, such as /dev/stdout; for any other link errno is ELOOP, and nothing is made or written.
  static Descriptor open(const std::filesystem::path& path) {
    // Without O_NONBLOCK this would wait for a reader of a FIFO, and so would a write for a reader that has stopped.
    constexpr int kFlags = O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK;
    Descriptor file{::open(path.c_str(), kFlags | O_CREAT | O_NOFOLLOW, 0666)};
    if (file || errno != ELOOP) return file;
    Descriptor target{::open(path.c_str(), kFlags)};
    if (target ? !is_regular(target) : errno != ENOENT) return target;
    errno = ELOOP;
    return {};
  }
  static bool is_regular(const Descriptor& file) {
    struct stat status {};
    return ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode);
  }
  bool is_regular() const { return is_regular(file_); }
  bool is_in_place() const {
    struct stat mine {
    }, there{};
    return ::fstat(file_.get(), &mine) == 0 && ::lstat(path_.c_str(), &there) == 0 && mine.st_dev == there.st_dev &&
           mine.st_ino == there.st_ino;
  }
  bool is_of_this_kind() const;
  bool lacks_header() const;
  void make_anew();

  std::filesystem::path path_;
  RowFormat format_;
  Log log_;
  Descriptor file_;
  std::string header_;
  bool has_begun_ = false;    ///< It is known whether the run goes on.
  bool has_written_ = false;  ///< A row of this start of the program is in the file.
  bool has_warned_ = false;   ///< Of a row that could not be written.
  bool has_warned_of_loss_ = false;
};

inline bool RowFile::is_of_this_kind() const {
  std::string front(format_.start.size(), '\0');
  // What lies there may have been replaced by a FIFO since it was opened; its writer is not waited for.
  const Descriptor file{::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  front.resize(static_cast<std::size_t>(std::max<ssize_t>(::read(file.get(), front.data(), front.size()), 0)));
  return format_.start.starts_with(front);  // a kill may have cut the first row
}

inline bool RowFile::lacks_header() const {
  if (header_.empty()) return false;
  struct stat status {};
  return is_regular() ? ::fstat(file_.get(), &status) == 0 && status.st_size == 0 : !has_written_;
}

inline std::string RowFile::first_line() const {
  std::string line;
  if (is_regular()) std::getline(std::ifstream{path_, std::ios::binary} >> std::noskipws, line);
  return line;
}

inline RowFile::RowFile(std::filesystem::path path, const RowFormat& format, Log log)
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
    throw Error{Errc::config, path_.string() + " is no " + std::string{format_.kind} + ": it does not begin with " +
                                  std::string{format_.start} +
                                  ", and is left as it is; name another file, or remove this one"};
}

inline void RowFile::start_anew() {
  has_begun_ = true;
  if (!is_regular() || std::filesystem::file_size(path_) == 0) return;
  auto other = path_;
  std::error_code failure;
  for (int number = 1; std::filesystem::exists(std::filesystem::symlink_status(other, failure)); ++number)
    other.replace_filename(path_.stem().string() + '.' + std::to_string(number) + path_.extension().string());
  std::filesystem::rename(path_, other, failure);
  if (!failure) file_ = open(path_);
  if (failure || !file_) throw file_error(Errc::storage, "cannot move the rows of an earlier run out of", path_);
  log_.info("the rows of an earlier run in " + path_.string() + " are now in " + other.string());
}

inline void RowFile::resume_at(std::int64_t step) {
  has_begun_ = true;
  if (!is_regular()) return;
  write_file_atomic(path_, [&](File& kept) {
    std::ifstream rows{path_, std::ios::binary};
    std::string block;
    const auto pass_on = [&](std::size_t least) {
      if (block.size() < least) return;
      kept.write(bytes_of(block));
      block.clear();
    };
    // A kill may have cut a last line without a line end.
    for (std::string line; std::getline(rows, line) && (format_.shows_its_end || !rows.eof()); pass_on(1 << 16)) {
      const auto row_step = format_.step_of(line);
      if (row_step && *row_step <= step) (block += line) += '\n';
    }
    if (rows.bad()) throw file_error(Errc::storage, "cannot read", path_);
    pass_on(1);
  });
  file_ = open(path_);
  if (!file_) throw file_error(Errc::storage, "cannot open the " + std::string{format_.kind}, path_);
}

/// The file was removed, or another one was put in its place.
inline void RowFile::make_anew() {
  std::error_code failure;
  std::filesystem::create_directories(path_.parent_path(), failure);
  auto file = open(path_);
  std::string failure_text;
  if (!file)
    failure_text = file_error(Errc::storage, "cannot open", path_).what();
  else if (!is_regular(file))
    failure_text = "what lies there now is no regular file";
  else if (!is_of_this_kind())
    failure_text = "what lies there now is no " + std::string{format_.kind} + " and is left as it is";
  else
    file_ = std::move(file);
  if (!std::exchange(has_warned_of_loss_, true))
    log_.warn(path_.string() + " was removed or replaced while the run goes on; " +
              (failure_text.empty() ? "from now on the rows go to a new file" : "the rows are lost: " + failure_text));
}

inline void RowFile::append(std::string_view row) {
  if (!has_begun_) start_anew();
  if (is_regular() && !is_in_place()) make_anew();
  const std::string line = (lacks_header() ? header_ : "") + std::string{row};
  ssize_t size = 0;
  do size = ::write(file_.get(), line.data(), line.size());
  while (size < 0 && errno == EINTR);
  if (size == static_cast<ssize_t>(line.size())) {
    has_written_ = true;
    return;
  }
  const std::string failure_text = size < 0 ? file_error(Errc::storage, "cannot write", path_).what()
                                            : "cannot write " + path_.string() + ": the disk is full";
  // Half a row would spoil the next one.
  if (size > 0 && is_regular()) {
    const off_t end = ::lseek(file_.get(), 0, SEEK_END);
    [[maybe_unused]] const int cut = ::ftruncate(file_.get(), end - size);
  }
  if (!std::exchange(has_warned_, true)) log_.warn(failure_text + "; training goes on without these rows");
}

}  // namespace ddpxx
