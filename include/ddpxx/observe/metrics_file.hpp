// ddpxx/observe/metrics_file.hpp — the record of a run: a JSONL file with one row per event.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <ios>
#include <limits>
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
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/json_row.hpp>

namespace ddpxx {

/// Appends rows; each row is one write of one whole line, so that a kill leaves at most a cut last line. Each row
/// starts with `step`; rows of evaluations and snapshots have no `loss`. A number that is not finite is written as
/// null. A row that cannot be written later on, for a full disk say, is lost with one warning: training goes on.
/// A file holds the rows of one run: those of an earlier one are moved to another file and never removed. A file that
/// was removed or replaced while the run goes on is made anew for the next row, with one warning.
class MetricsFile {
 public:
  /// Opens the file, and makes it and its folders where they are missing. What it holds stays until the run begins.
  /// Errors  `config`, naming the path and the reason: it cannot be opened, or is no metrics file and holds something.
  explicit MetricsFile(std::filesystem::path path, Log log = Log{0});

  /// A run goes on after this step: keeps the rows up to and including it, and cuts later ones and a half-written last
  /// one.
  /// Errors  `storage`; the file is then as it was.
  void resume_at(std::int64_t step);

  /// A new run begins, also where the first row comes without any call: the rows of an earlier run are moved from
  /// `metrics.jsonl` to `metrics.1.jsonl`, or the next number that is free.
  /// Errors  `storage`; the file is then as it was.
  void start_anew();

  void write(const StepDone& event) {
    JsonRow row;
    row.add("step", event.step)
        .add("epoch", event.epoch)
        .add("loss", event.loss)
        .add("grad_norm", event.grad_norm)
        .add("lr", event.learning_rate)
        .add("tokens_per_second", event.tokens_per_second)
        .add("step_ms", event.step_ms)
        .add("peak_memory_bytes", event.peak_memory_bytes)
        .add("state_bytes", event.state_bytes)
        .add("samples", event.samples)
        .add("tokens", event.tokens)
        .add("time", event.at.time)
        .add("elapsed", event.at.elapsed);
    if (event.loss_scale) row.add("loss_scale", *event.loss_scale).add("skipped_steps", event.skipped_steps);
    append(row);
  }
  void write(const Evaluated& event) {
    append(JsonRow{}
               .add("step", event.step)
               .add("epoch", event.epoch)
               .add("val_loss", event.val_loss)
               .add("samples", event.samples)
               .add("time", event.at.time)
               .add("elapsed", event.at.elapsed));
  }
  void write(const SnapshotSaved& event) {
    append(JsonRow{}
               .add("step", event.step)
               .add("snapshot", event.path)
               .add("seconds", event.seconds)
               .add("waited_seconds", event.waited_seconds)
               .add("time", event.at.time)
               .add("elapsed", event.at.elapsed));
  }

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
  void make_anew();
  void append(const JsonRow& row);

  std::filesystem::path path_;
  Log log_;
  Descriptor file_;
  bool positioned_ = false;
  bool warned_ = false;
  bool warned_of_loss_ = false;
};

namespace detail {

inline constexpr std::string_view kRowStart = "{\"step\":";

/// The step of a row as `MetricsFile` writes it; none for any other line, a row without its end included.
inline std::optional<std::int64_t> step_of_row(std::string_view line) {
  if (!line.starts_with(kRowStart) || !line.ends_with('}')) return std::nullopt;
  bool in_text = false;  // a row that was cut inside a text may end with that text's own brace
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (in_text && line[i] == '\\')
      ++i;
    else if (line[i] == '"')
      in_text = !in_text;
  }
  std::int64_t step = 0;
  const auto [end, status] = std::from_chars(line.data() + kRowStart.size(), line.data() + line.size(), step);
  return in_text || status != std::errc{} ? std::nullopt : std::optional{step};
}

/// Whether a file is empty or begins as a row does; a row that was cut by a kill may be all that it holds.
inline bool may_be_metrics(const std::filesystem::path& path) {
  std::array<char, kRowStart.size()> front{};
  // What lies there may have been replaced by a FIFO since it was opened, whose writer is not waited for.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  const auto size = ::read(file.get(), front.data(), front.size());
  return kRowStart.starts_with(std::string_view{front.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))});
}

}  // namespace detail

inline MetricsFile::MetricsFile(std::filesystem::path path, Log log) : path_{std::move(path)}, log_{log} {
  std::error_code failure;
  if (path_.has_parent_path()) std::filesystem::create_directories(path_.parent_path(), failure);
  file_ = open(path_);
  if (!file_ && errno == ELOOP)
    throw Error{Errc::config, "cannot open the metrics file " + path_.string() +
                                  ": it is a symbolic link, which other users may have put there, and does not lead "
                                  "to a device or a FIFO; name the file itself, or remove the link"};
  if (!file_ && errno == ENXIO)
    throw Error{Errc::config, "cannot open the metrics file " + path_.string() +
                                  ": it is a FIFO that no program reads; start the reader first, or name a file"};
  if (!file_) throw file_error(Errc::config, "cannot open the metrics file", path_);
  if (!is_regular()) return;
  path_ = std::filesystem::absolute(path_);  // the working folder may change
  if (!detail::may_be_metrics(path_))
    throw Error{Errc::config, path_.string() +
                                  " is no metrics file: it does not begin with a row of metrics, and is left as it is; "
                                  "name another file, or remove this one"};
}

inline void MetricsFile::start_anew() {
  positioned_ = true;
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

inline void MetricsFile::resume_at(std::int64_t step) {
  positioned_ = true;
  if (!is_regular()) return;
  write_file_atomic(path_, [&](File& kept) {
    std::ifstream rows{path_, std::ios::binary};
    std::string block;
    const auto pass_on = [&](std::size_t least) {
      if (block.size() < least) return;
      kept.write(bytes_of(block));
      block.clear();
    };
    for (std::string line; std::getline(rows, line); pass_on(1 << 16)) {
      const auto row_step = detail::step_of_row(line);
      if (row_step && *row_step <= step) (block += line) += '\n';
    }
    if (rows.bad()) throw file_error(Errc::storage, "cannot read", path_);
    pass_on(1);
  });
  file_ = open(path_);
  if (!file_) throw file_error(Errc::storage, "cannot open the metrics file", path_);
}

/// Somebody has removed the file, or put another one in its place.
inline void MetricsFile::make_anew() {
  std::error_code failure;
  std::filesystem::create_directories(path_.parent_path(), failure);
  auto file = open(path_);
  std::string failure_text;
  if (!file)
    failure_text = file_error(Errc::storage, "cannot open", path_).what();
  else if (!is_regular(file))
    failure_text = "what lies there now is no regular file";
  else if (!detail::may_be_metrics(path_))
    failure_text = "what lies there now is no metrics file and is left as it is";
  else
    file_ = std::move(file);
  if (!std::exchange(warned_of_loss_, true))
    log_.warn(path_.string() + " was removed or replaced while the run goes on; " +
              (failure_text.empty() ? "from now on the rows go to a new file" : "the rows are lost: " + failure_text));
}

inline void MetricsFile::append(const JsonRow& row) {
  if (!positioned_) start_anew();
  if (is_regular() && !is_in_place()) make_anew();
  const std::string line = row.line();
  ssize_t size = 0;
  do size = ::write(file_.get(), line.data(), line.size());
  while (size < 0 && errno == EINTR);
  if (size == static_cast<ssize_t>(line.size())) return;
  const std::string failure_text = size < 0 ? file_error(Errc::storage, "cannot write", path_).what()
                                            : "cannot write " + path_.string() + ": the disk is full";
  // Half a row would spoil the next one.
  if (size > 0 && is_regular()) {
    const off_t end = ::lseek(file_.get(), 0, SEEK_END);
    [[maybe_unused]] const int cut = ::ftruncate(file_.get(), end - size);
  }
  if (!std::exchange(warned_, true)) log_.warn(failure_text + "; training goes on without these rows");
}

}  // namespace ddpxx
