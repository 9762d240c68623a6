// ddpxx/observe/csv_file.hpp — the steps and evaluations of a run as a table: a CSV file with one header.
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ddpxx/core/log.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/observer.hpp>
#include <ddpxx/observe/row_file.hpp>

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

}  // namespace detail

/// Writes a row for each step and each evaluation, as `RowFile` does, under the names of the metrics file; what an
/// event does not have is an empty cell, and so is a number that is not finite. Columns for the model's own metrics are
/// those of the first row; a resumed run keeps the columns of its file.
class CsvFile : public Observer {
 public:
  /// Errors  those of RowFile.
  explicit CsvFile(std::filesystem::path path, Log log = Log{0})
      : file_{std::move(path),
              {.kind = "CSV file of metrics", .start = "step,", .step_of = detail::step_of_csv_row},
              log} {}

  std::string name() const override { return "the CSV file"; }

  void on_begin(const RunBegan& run) override {
    columns_.clear();
    if (!run.goes_on) return file_.start_anew();
    file_.resume_at(run.step);
    columns_ = detail::cells_of(file_.first_line());
  }

  Verdict on_step(const StepDone& event) override {
    Cells cells;
    add(cells, "step", event.step);
    add(cells, "epoch", event.epoch);
    add(cells, "loss", event.loss);
    add(cells, "grad_norm", event.grad_norm);
    add(cells, "lr", event.learning_rate);
    add(cells, "tokens_per_second", event.tokens_per_second);
    add(cells, "step_ms", event.step_ms);
    add(cells, "peak_memory_bytes", event.peak_memory_bytes);
    add(cells, "state_bytes", event.state_bytes);
    add(cells, "samples", event.samples);
    add(cells, "tokens", event.tokens);
    if (event.loss_scale) {
      add(cells, "loss_scale", *event.loss_scale);
      add(cells, "skipped_steps", event.skipped_steps);
    }
    for (const auto& metric : event.metrics) add(cells, metric.name, metric.value);
    write(cells, event.at, event.metrics);
    return Verdict::go_on;
  }
  Verdict on_evaluated(const Evaluated& event) override {
    Cells cells;
    add(cells, "step", event.step);
    add(cells, "epoch", event.epoch);
    add(cells, "val_loss", event.val_loss);
    for (const auto& metric : event.metrics) add(cells, "val_" + metric.name, metric.value);
    write(cells, event.at, event.metrics);
    return Verdict::go_on;
  }

 private:
  using Cells = std::map<std::string, std::string, std::less<>>;

  static constexpr std::array<std::string_view, 16> kColumns{"step",
                                                             "epoch",
                                                             "loss",
                                                             "grad_norm",
                                                             "lr",
                                                             "tokens_per_second",
                                                             "step_ms",
                                                             "peak_memory_bytes",
                                                             "state_bytes",
                                                             "samples",
                                                             "tokens",
                                                             "loss_scale",
                                                             "skipped_steps",
                                                             "val_loss",
                                                             "time",
                                                             "elapsed"};

  /// The shortest text that reads back as the same number.
  template <class Number>
  static void add(Cells& cells, const std::string& column, Number value) {
    if constexpr (std::floating_point<Number>)
      if (!std::isfinite(value)) return;
    std::array<char, 32> text;  // NOLINT(cppcoreguidelines-pro-type-member-init): to_chars fills it
    cells[column] = std::string{text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
  }

  void write(Cells& cells, const EventTime& at, const Metrics& metrics) {
    add(cells, "time", at.time);
    add(cells, "elapsed", at.elapsed);
    if (columns_.empty()) {
      columns_.assign(kColumns.begin(), kColumns.end());
      for (const char* prefix : {"", "val_"})
        for (const auto& metric : metrics) columns_.push_back(prefix + metric.name);
    }
    std::string header, row;
    for (const auto& column : columns_) {
      const auto cell = cells.find(column);
      header += (header.empty() ? "" : ",") + column;
      row += (row.empty() ? "" : ",") + (cell == cells.end() ? "" : cell->second);
    }
    file_.set_header(header + '\n');
    file_.append(row + '\n');
  }

  RowFile file_;
  std::vector<std::string> columns_;
};

}  // namespace ddpxx
