// ddpxx/launch/sweep/sweep_table.hpp — the results of a sweep: a row for each job, the best metric first.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <limits>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/core/log.hpp>
#include <ddpxx/core/sweep.hpp>
#include <ddpxx/core/utf8.hpp>
#include <ddpxx/launch/sweep/sweep_folder.hpp>

namespace ddpxx::detail {

/// The last value of `key` in a file of JSON rows; none if no row has the key, or the last one has null.
inline std::optional<double> last_metric(const std::filesystem::path& rows, std::string_view key);

/// The table of all jobs. A job without a status has not ended, and only a job that ended with 0 can be the best.
/// `metric` is SweepOptions::metric; empty means `val_loss` if any job has written it, else `loss`.
inline std::string sweep_table(std::span<const SweepJob> jobs, std::span<const std::optional<JobStatus>> statuses,
                               const SweepFolder& folder, const std::string& metric);

/// The names of metrics that a job may have: `metric`, or val_loss and loss if that is empty.
inline std::vector<std::string> metric_names(const std::string& metric);

/// The jobs that ended with 0 and have none of `metric_names`, if `metric` is not empty or another job has one.
inline std::vector<std::size_t> jobs_without_metric(std::span<const SweepJob> jobs,
                                                    std::span<const std::optional<JobStatus>> statuses,
                                                    const SweepFolder& folder, const std::string& metric);

/// The text behind `"key":` in a flat row, up to the next comma or brace; none if the row is cut or lacks the key.
inline std::optional<std::string_view> row_entry(std::string_view row, std::string_view key) {
  if (!row.starts_with('{') || !row.ends_with('}')) return std::nullopt;
  const auto end_of_text = [&](std::size_t at) {
    while (at < row.size() && row[at] != '"') at += row[at] == '\\' ? 2 : 1;
    return std::min(at, row.size());
  };
  for (std::size_t at = row.find('"'); at < row.size(); at = row.find('"', at)) {
    const auto end = end_of_text(at + 1);
    const auto text = row.substr(at + 1, end - at - 1);
    at = std::min(end + 1, row.size());
    if (text != key || !row.substr(at).starts_with(':')) continue;
    auto value = row.substr(at + 1, row.find_first_of(",}", at) - at - 1);
    while (value.starts_with(' ')) value.remove_prefix(1);
    while (value.ends_with(' ')) value.remove_suffix(1);
    return value;
  }
  return std::nullopt;
}

inline std::string metric_name(std::string_view metric) {
  return std::string{metric.substr(metric.starts_with('-') ? 1 : 0)};
}

/// True if the job has written one of the metrics.
inline bool has_one_of(const std::vector<std::string>& names, const SweepJob& job, const SweepFolder& folder) {
  return std::ranges::any_of(
      names, [&](const auto& name) { return last_metric(folder.path(job) / "metrics.jsonl", name).has_value(); });
}

struct SweepRow {
  std::size_t job = 0;
  std::optional<double> metric;
};

inline std::vector<SweepRow> metric_rows(std::span<const SweepJob> jobs, const SweepFolder& folder,
                                         const std::string& name) {
  std::vector<SweepRow> rows;
  for (std::size_t i = 0; i < jobs.size(); ++i)
    rows.push_back({i, last_metric(folder.path(jobs[i]) / "metrics.jsonl", name)});
  return rows;
}

/// The cells as a table whose columns are as wide as their widest cells.
inline std::string aligned(const std::vector<std::vector<std::string>>& cells) {
  std::vector<std::size_t> widths(cells.front().size());
  for (const auto& row : cells)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], count_characters(row[i]));
  std::string text;
  for (const auto& row : cells) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += row[i] + std::string(widths[i] + 2 - count_characters(row[i]), ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

inline std::optional<double> last_metric(const std::filesystem::path& rows, std::string_view key) {
  std::ifstream file{rows, std::ios::binary};
  std::optional<double> last;
  for (std::string row; std::getline(file, row);) {
    const auto entry = row_entry(row, key);
    if (!entry) continue;
    double value = 0;
    const auto status = std::from_chars(entry->data(), entry->data() + entry->size(), value).ec;
    last = status == std::errc{} && std::isfinite(value) ? std::optional{value} : std::nullopt;
  }
  return last;
}

inline std::vector<std::string> metric_names(const std::string& metric) {
  if (metric.empty()) return {"val_loss", "loss"};
  return {metric_name(metric)};
}

inline std::vector<std::size_t> jobs_without_metric(std::span<const SweepJob> jobs,
                                                    std::span<const std::optional<JobStatus>> statuses,
                                                    const SweepFolder& folder, const std::string& metric) {
  const auto names = metric_names(metric);
  std::vector<std::size_t> missing;
  bool is_expected = !metric.empty();
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const bool has_one = has_one_of(names, jobs[i], folder);
    is_expected = is_expected || has_one;
    if (!has_one && statuses[i] && statuses[i]->code == 0) missing.push_back(i);
  }
  if (!is_expected) missing.clear();
  return missing;
}

inline std::string sweep_table(std::span<const SweepJob> jobs, std::span<const std::optional<JobStatus>> statuses,
                               const SweepFolder& folder, const std::string& metric) {
  const double sign = metric.starts_with('-') ? -1 : 1;
  std::string name;
  std::vector<SweepRow> rows;
  for (const auto& candidate : metric_names(metric)) {
    name = candidate;
    rows = metric_rows(jobs, folder, name);
    if (std::ranges::any_of(rows, [](const SweepRow& row) { return row.metric.has_value(); })) break;
  }
  const auto compares = [&](const SweepRow& row) {
    return row.metric && statuses[row.job] && statuses[row.job]->code == 0;
  };
  std::ranges::stable_sort(rows, {}, [&](const SweepRow& row) {
    return compares(row) ? sign * *row.metric : std::numeric_limits<double>::infinity();
  });

  std::vector<std::vector<std::string>> cells{{"job", "arguments", "exit", "seconds", name, ""}};
  for (const auto& row : rows) {
    const auto& status = statuses[row.job];
    std::string varied;
    for (const auto& argument : jobs[row.job].varied)
      varied.append(varied.empty() ? "" : " ").append(harmless(argument));
    const auto seconds = [&] {
      return (std::ostringstream{} << std::fixed << std::setprecision(1) << status->seconds).str();
    };
    const auto value = [&] { return (std::ostringstream{} << std::setprecision(6) << *row.metric).str(); };
    const bool best = &row == &rows.front() && compares(row);
    cells.push_back({std::to_string(jobs[row.job].number), varied, status ? std::to_string(status->code) : "-",
                     status ? seconds() : "-", row.metric ? value() : "-", best ? "best" : ""});
  }
  return aligned(cells);
}

}  // namespace ddpxx::detail
