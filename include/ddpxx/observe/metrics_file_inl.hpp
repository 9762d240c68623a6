// ddpxx/observe/metrics_file_inl.hpp — definitions of metrics_file.hpp; ddpxx/core/inline.hpp says how they are
// compiled.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <ddpxx/core/log.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/json_row.hpp>
#include <ddpxx/observe/metrics_file.hpp>
#include <ddpxx/observe/observer.hpp>
#include <ddpxx/observe/step_numbers.hpp>

namespace ddpxx {

namespace detail {

inline constexpr std::string_view kJsonRowStart = "{\"step\":";

/// The step of a row as `MetricsFile` writes it; none for any other line, a row without its end included.
inline std::optional<std::int64_t> step_of_json_row(std::string_view line) {
  if (!line.starts_with(kJsonRowStart) || !line.ends_with('}')) return std::nullopt;
  bool in_text = false;  // a row that was cut inside a text may end with that text's own brace
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (in_text && line[i] == '\\')
      ++i;
    else if (line[i] == '"')
      in_text = !in_text;
  }
  std::int64_t step = 0;
  const auto [end, status] = std::from_chars(line.data() + kJsonRowStart.size(), line.data() + line.size(), step);
  return in_text || status != std::errc{} ? std::nullopt : std::optional{step};
}

/// When a row was written. The key cannot lie inside a text, whose quotes have a backslash before them.
inline std::optional<double> time_of_json_row(std::string_view /*first*/, std::string_view line) {
  constexpr std::string_view kKey = ",\"time\":";
  const auto key = line.find(kKey);
  double time = 0;
  if (key == std::string_view::npos) return std::nullopt;
  const auto [end, status] = std::from_chars(line.data() + key + kKey.size(), line.data() + line.size(), time);
  return status == std::errc{} ? std::optional{time} : std::nullopt;
}

}  // namespace detail

DDPXX_INLINE MetricsFile::MetricsFile(std::filesystem::path path, Log log)
    : file_{std::move(path),
            {.kind = "metrics file",
             .start = detail::kJsonRowStart,
             .step_of = detail::step_of_json_row,
             .time_of = detail::time_of_json_row,
             .shows_its_end = true},
            log} {}

DDPXX_INLINE std::string MetricsFile::name() const { return "the metrics file"; }

DDPXX_INLINE void MetricsFile::on_begin(const RunBegan& run) {
  if (run.goes_on)
    file_.resume_at(run.step, run.saved_at);
  else
    file_.set_old_rows_aside();
}

DDPXX_INLINE Verdict MetricsFile::on_step(const StepDone& event) {
  JsonRow row;
  detail::for_each_number(event, [&](std::string_view name, auto number) { row.add(name, number); });
  file_.append(row.line());
  return Verdict::go_on;
}

DDPXX_INLINE Verdict MetricsFile::on_evaluated(const Evaluated& event) {
  JsonRow row;
  row.add("step", event.step)
      .add("epoch", event.epoch)
      .add("val_loss", event.val_loss)
      .add("samples", event.samples)
      .add("time", event.at.time)
      .add("elapsed", event.at.elapsed);
  for (const auto& metric : event.metrics) row.add("val_" + metric.name, metric.value);
  file_.append(row.line());
  return Verdict::go_on;
}

DDPXX_INLINE void MetricsFile::on_snapshot(const SnapshotSaved& event) {
  file_.append(JsonRow{}
                   .add("step", event.step)
                   .add("snapshot", event.path)
                   .add("seconds", event.seconds)
                   .add("waited_seconds", event.waited_seconds)
                   .add("time", event.at.time)
                   .add("elapsed", event.at.elapsed)
                   .line());
}

DDPXX_INLINE void MetricsFile::on_end(const RunEnded&) { file_.release(); }

}  // namespace ddpxx
