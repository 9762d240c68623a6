// ddpxx/observe/row_file.hpp — a file with one row for each event of a run, which a resumed run continues.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>

namespace ddpxx {

/// How the rows of a file look.
struct RowFormat {
  std::string_view kind;   ///< The name of such a file in errors.
  std::string_view start;  ///< The text with which such a file begins.
  /// The step of a row; none for a line that is not a whole row.
  std::optional<std::int64_t> (*step_of)(std::string_view line);
  /// When a row was written, in seconds since 1970-01-01 UTC; none for a line that does not say it. `first` is the
  /// first line of the file.
  std::optional<double> (*time_of)(std::string_view first, std::string_view line);
  bool shows_its_end = false;  ///< step_of knows a whole row without its line end.
};

/// Appends rows; each row is one write of one whole line, so that a kill leaves at most a cut last line. A row that
/// cannot be written later on, because the disk is full for example, is lost with one warning: training goes on.
/// A file holds the rows of one run: those of an earlier one are moved to another file and never removed. A file that
/// was removed or replaced while the run goes on is opened again for the next row, with one warning.
/// The run locks its file (flock) from its begin to its end, so that no other run cuts its rows or adds its own. The
/// system releases the lock when the process, and those that it has forked, end in whatever way. A file system without
/// locks, and one of SMB, on which other programs could not read a locked file, do not keep two runs apart.
class RowFile {
 public:
  /// Opens the file, and makes it and its folders where they are missing. What it holds stays until the run begins.
  /// Errors  `config`, naming the path and the reason: it cannot be opened, or is of another kind and holds something.
  RowFile(std::filesystem::path path, const RowFormat& format, Log log);

  /// Takes the lock, keeps the rows up to and including `step`, after which the run goes on, and cuts later ones and a
  /// half-written last one. Removes other lines that are no rows, with a warning, and a carriage return at the end of a
  /// line. Where another run has begun the file since `saved_at`, when the snapshot of that step was saved, its rows
  /// are moved as by set_old_rows_aside(). In seconds since 1970-01-01 UTC; 0 is not known.
  /// Errors  `config` if another run has the lock and keeps it for 3 s, or for 2 minutes on a file server; `storage`. The
  ///         file is then as it was.
  void resume_at(std::int64_t step, std::int64_t saved_at);

  /// Begins a new run: takes the lock, and moves the rows of an earlier run from `metrics.jsonl` to `metrics.1.jsonl`,
  /// or the next number that is free.
  /// Errors  as of resume_at().
  void set_old_rows_aside();

  /// Ends the run: releases the lock, so that another run may have the file.
  void release();

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
  static Descriptor open(const std::filesystem::path& path);
  static bool is_regular(const Descriptor& file);
  bool is_regular() const;
  bool is_in_place() const;
  bool is_of_this_kind() const;
  bool lacks_header() const;
  /// Whether another run has begun the file since the snapshot of a step: the first row that says its time is of that
  /// step or an earlier one, and was written at least a second after `saved_at`, which is rounded down.
  bool is_of_another_run(std::int64_t step, std::int64_t saved_at) const;
  /// Moves the rows of another run to the next free name.
  /// Errors  `storage`, and as of wait_for_lock().
  void move_aside();
  /// Opens the file again, or makes a new one, after it was removed or replaced. Once the run has begun, it takes the
  /// lock of that file, too, and does not wait for it. Warns once.
  void reopen_replaced_file();
  /// Takes the lock of the regular file at the path, which is opened again if it was replaced. False if the rows cannot
  /// go there, after a warning.
  /// Errors  as of wait_for_lock().
  bool take();
  /// Takes the lock of the open file. Waits for a process that is just ending, and for a file server, which keeps the
  /// lock of a machine that is lost for a while.
  /// Errors  as of resume_at().
  void wait_for_lock() const;

  std::filesystem::path path_;
  RowFormat format_;
  Log log_;
  Descriptor file_;
  std::string header_;
  bool has_begun_ = false;    ///< It is known whether the run goes on.
  bool has_written_ = false;  ///< A row of this start of the program is in the file.
  bool has_warned_ = false;   ///< A warning has told of a row that could not be written.
  bool has_warned_of_loss_ = false;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/observe/row_file_inl.hpp>
#endif
