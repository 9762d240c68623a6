// ddpxx/snapshot/snapshot_config.hpp — the settings for writing and keeping snapshots.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/metric_mode.hpp>
#include <ddpxx/snapshot/retention.hpp>

namespace ddpxx {

/// How long a save blocks training: until the snapshot is written, or until the state is copied.
enum class SnapshotWriting { foreground, background };
/// What happens to a snapshot that is due while the previous one is still being written.
enum class SnapshotBusy { wait, skip };
/// What follows if a snapshot cannot be written: the run ends, or it goes on with a warning and tries again when the
/// next snapshot is due.
enum class SnapshotFailure { stop, go_on };

constexpr auto enum_names(SnapshotWriting) {
  return std::array{Named{SnapshotWriting::foreground, "foreground"}, Named{SnapshotWriting::background, "background"}};
}
constexpr auto enum_names(SnapshotBusy) {
  return std::array{Named{SnapshotBusy::wait, "wait"}, Named{SnapshotBusy::skip, "skip"}};
}
constexpr auto enum_names(SnapshotFailure) {
  return std::array{Named{SnapshotFailure::stop, "stop"}, Named{SnapshotFailure::go_on, "go_on"}};
}

/// The settings under `snapshot.`.
struct SnapshotConfig {
  std::string name = {};
  SnapshotWriting writing = SnapshotWriting::foreground;
  SnapshotBusy busy = SnapshotBusy::wait;
  SnapshotFailure on_failure = SnapshotFailure::stop;
  std::int64_t load_attempts = 2;
  std::int64_t keep_last = 2;
  std::int64_t keep_best = 0;
  std::string best_by = "loss";
  MetricMode best_mode = MetricMode::min;
  std::int64_t keep_every = 0;
  std::int64_t keep_every_epochs = 0;
  double keep_every_time = 0.0;

  Retention retention() const {
    return {.last = keep_last,
            .best = keep_best,
            .metric = best_by,
            .mode = best_mode,
            .every_steps = keep_every,
            .every_epochs = keep_every_epochs,
            .every_seconds = keep_every_time};
  }

  static constexpr auto describe() {
    return fields(
        field<&SnapshotConfig::name>(
            "Snapshot to begin with, unless save_dir has one: PLACE, PLACE:STEP or PLACE:best; "
            "snapshot=... is short for this",
            Resume::free),
        field<&SnapshotConfig::writing>(
            "Whether a save blocks training until the snapshot is written, or only until the state is copied",
            Resume::free),
        field<&SnapshotConfig::busy>(
            "Whether a snapshot that is due while the last one is being written waits, or is skipped", Resume::free),
        field<&SnapshotConfig::on_failure>(
            "Whether the run stops or goes on when a snapshot cannot be written; the last one of a run must be written",
            Resume::free),
        field<&SnapshotConfig::load_attempts>("Number of starts that may be killed while reading a snapshot before "
                                              "other snapshots are tried first; 0 counts none",
                                              at_least(0), Resume::free),
        field<&SnapshotConfig::keep_last>("Number of newest snapshots to keep; 0 keeps all", at_least(0), Resume::free),
        field<&SnapshotConfig::keep_best>("Number of snapshots with the best evaluations to keep as well; such an "
                                          "evaluation is saved at once",
                                          at_least(0), Resume::free),
        field<&SnapshotConfig::best_by>("What keep_best compares: loss, or a metric of the model", Resume::free),
        field<&SnapshotConfig::best_mode>("Whether the lowest or the highest value of best_by is the best",
                                          Resume::free),
        field<&SnapshotConfig::keep_every>("Also keep snapshots whose step is a multiple of this; 0 is off",
                                           at_least(0), Unit::steps, Resume::free),
        field<&SnapshotConfig::keep_every_epochs>(
            "Also keep the first snapshot after every this many complete epochs; 0 is off", at_least(0), Unit::epochs,
            Resume::free),
        field<&SnapshotConfig::keep_every_time>(
            "Also keep the oldest snapshot, and one each time this much time has passed; 0 is off", at_least(0.0),
            Unit::seconds, Resume::free));
  }
};

}  // namespace ddpxx
