// ddpxx/observe/csv_file_inl.hpp — definitions of csv_file.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ddpxx/core/log.hpp>
#include <ddpxx/observe/csv_file.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/observer.hpp>
#include <ddpxx/observe/step_numbers.hpp>

namespace ddpxx {

namespace detail {

/// The step of a row as `CsvFile` writes it. The header counts as a row of a step before all others.
inline std::optional<std::int64_t> step_of_csv_row(std::string_view line) {
  if (line.starts_with("step,")) return std::numeric_limits<std::int64_t>::min();
  std::int64_t step = 0;
  const auto [end, status] = std::from_chars(line.data(), line.data() + line.size(), step);
  return status == std::errc{} && end != line.data() + line.size() && *end == ',' ? std::optional{step} : std::nullopt;
}

inline std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells;
  for (auto comma = line.find(','); comma != line.npos; comma = line.find(',')) {
    cells.emplace_back(line.substr(0, comma));
    line.remove_prefix(comma + 1);
  }
  if (!line.empty()) cells.emplace_back(line);
  return cells;
}

inline constexpr std::array<std::string_view, 17> kCsvColumns{"step",
                                                              "epoch",
                                                              "loss",
                                                              "grad_norm",
                                                              "lr",
                                                              "tokens_per_second",
                                                              "step_ms",
                                                              "data_ms",
                                                              "peak_memory_bytes",
                                                              "state_bytes",
                                                              "samples",
                                                              "tokens",
                                                              "loss_scale",
                                                              "skipped_steps",
                                                              "val_loss",
                                                              "time",
                                                              "elapsed"};
/// The columns of a run on a GPU, after those above.
inline constexpr std::array<std::string_view, 4> kCsvColumnsOfGpu{"gpu_allocated_bytes", "gpu_reserved_bytes",
                                                                  "gpu_peak_bytes", "gpu_retries"};

/// The columns of a run that measures its ranks, after those above.
inline constexpr std::array<std::string_view, 3> kCsvColumnsOfRanks{"slowest_rank", "slowest_rank_ms",
                                                                    "median_rank_ms"};

/// When a row was written; none for the header.
inline std::optional<double> time_of_csv_row(std::string_view header, std::string_view line) {
  const auto columns = cells_of(header), cells = cells_of(line);
  const auto column = static_cast<std::size_t>(std::ranges::find(columns, "time") - columns.begin());
  if (column >= cells.size()) return std::nullopt;
  const auto& cell = cells[column];
  double time = 0;
  const auto [end, status] = std::from_chars(cell.data(), cell.data() + cell.size(), time);
  return status == std::errc{} ? std::optional{time} : std::nullopt;
}

}  // namespace detail

/// The cells of a row by their columns.
class CsvFile::Cells {
 public:
  /// The shortest text that reads back as the same number.
  template <class Number>
  void add(const std::string& column, Number value) {
    if constexpr (std::floating_point<Number>)
      if (!std::isfinite(value)) return;
    std::array<char, 32> text;  // NOLINT(cppcoreguidelines-pro-type-member-init): to_chars fills it
    cells_[column] = std::string{text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
  }

  bool has(const std::string& column) const { return cells_.contains(column); }
  auto columns() const { return std::views::keys(cells_); }
  std::string get(const std::string& column) const {
    const auto cell = cells_.find(column);
    return cell == cells_.end() ? "" : cell->second;
  }

 private:
  std::map<std::string, std::string, std::less<>> cells_;
};

DDPXX_INLINE CsvFile::CsvFile(std::filesystem::path path, Log log)
    : file_{std::move(path),
            {.kind = "CSV file of metrics",
             .start = "step,",
             .step_of = detail::step_of_csv_row,
             .time_of = detail::time_of_csv_row},
            log} {}

DDPXX_INLINE std::string CsvFile::name() const { return "the CSV file"; }

DDPXX_INLINE void CsvFile::on_begin(const RunBegan& run) {
  columns_.clear();
  left_out_.clear();
  has_gpu_ = !run.gpu.empty();
  has_rank_times_ = !run.hosts.empty();
  if (!run.goes_on) return file_.set_old_rows_aside();
  file_.resume_at(run.step, run.saved_at);
  columns_ = detail::cells_of(file_.first_line());
}

DDPXX_INLINE Verdict CsvFile::on_step(const StepDone& event) {
  Cells cells;
  detail::for_each_number(event, [&](const std::string& name, auto number) { cells.add(name, number); });
  write(cells, event.at, event.metrics);
  return Verdict::go_on;
}

DDPXX_INLINE Verdict CsvFile::on_evaluated(const Evaluated& event) {
  Cells cells;
  cells.add("step", event.step);
  cells.add("epoch", event.epoch);
  cells.add("val_loss", event.val_loss);
  for (const auto& metric : event.metrics) cells.add("val_" + metric.name, metric.value);
  write(cells, event.at, event.metrics);
  return Verdict::go_on;
}

DDPXX_INLINE void CsvFile::on_end(const RunEnded&) { file_.release(); }

DDPXX_INLINE void CsvFile::warn_of_missing_columns(const Cells& cells) {
  std::string names;
  for (const auto& column : cells.columns())
    if (std::ranges::find(columns_, column) == columns_.end() && left_out_.insert(column).second)
      names += (names.empty() ? "" : ", ") + column;
  if (names.empty()) return;
  file_.log().warn("the CSV file does not show " + names +
                   ": its columns are those of its first row; training.metrics has all numbers");
}

DDPXX_INLINE void CsvFile::write(Cells& cells, const EventTime& at, const Metrics& metrics) {
  cells.add("time", at.time);
  cells.add("elapsed", at.elapsed);
  if (columns_.empty()) {
    columns_.assign(detail::kCsvColumns.begin(), detail::kCsvColumns.end());
    if (has_gpu_ || cells.has("gpu_peak_bytes"))
      columns_.insert(columns_.end(), detail::kCsvColumnsOfGpu.begin(), detail::kCsvColumnsOfGpu.end());
    if (has_rank_times_ || cells.has("slowest_rank"))
      columns_.insert(columns_.end(), detail::kCsvColumnsOfRanks.begin(), detail::kCsvColumnsOfRanks.end());
    for (const char* of_event : {"", "val_"})
      for (const auto& metric : metrics) columns_.push_back(of_event + metric.name);
  }
  warn_of_missing_columns(cells);
  std::string header, row;
  for (const auto& column : columns_) {
    header += (header.empty() ? "" : ",") + column;
    row += (row.empty() ? "" : ",") + cells.get(column);
  }
  file_.set_header(header + '\n');
  file_.append(row + '\n');
}

}  // namespace ddpxx
