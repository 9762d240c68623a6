// ddpxx/observe/csv_file.hpp — the steps and evaluations of a run as a table: a CSV file with one header.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/observer.hpp>
#include <ddpxx/observe/row_file.hpp>

namespace ddpxx {

/// Writes a row for each step and each evaluation, as `RowFile` does, under the names of the metrics file; what an
/// event does not have is an empty cell, and so is a number that is not finite. Columns for the model's own metrics are
/// those of the first row; a resumed run keeps the columns of its file. A warning names numbers without a column.
class CsvFile : public Observer {
 public:
  /// Errors  those of RowFile.
  explicit CsvFile(std::filesystem::path path, Log log = Log{0});

  DDPXX_INLINE std::string name() const override;

  DDPXX_INLINE void on_begin(const RunBegan& run) override;
  DDPXX_INLINE Verdict on_step(const StepDone& event) override;
  DDPXX_INLINE Verdict on_evaluated(const Evaluated& event) override;
  DDPXX_INLINE void on_end(const RunEnded&) override;

 private:
  class Cells;

  /// Writes a row. The first row sets the columns, among them those of its metrics.
  void write(Cells& cells, const EventTime& at, const Metrics& metrics);
  /// Warns once of each number that has no column.
  void warn_of_missing_columns(const Cells& cells);

  RowFile file_;
  std::vector<std::string> columns_;
  std::set<std::string> left_out_;  ///< Numbers without a column that a warning has named.
  bool has_gpu_ = false;
  bool has_rank_times_ = false;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/observe/csv_file_inl.hpp>
#endif
