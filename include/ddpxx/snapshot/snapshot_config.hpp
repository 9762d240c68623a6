// ddpxx/snapshot/snapshot_config.hpp — what a user may set about how snapshots are written and kept.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/snapshot/retention.hpp>

namespace ddpxx {

/// Whether training waits until a snapshot is written, or only until its state is copied.
enum class SnapshotWriting { foreground, background };
/// What happens to a snapshot that is due while the one before is still being written.
enum class SnapshotBusy { wait, skip };
/// What follows when a snapshot cannot be written: the run ends, or it goes on with a warning until the next one is
/// due.
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

struct SnapshotConfig {
  std::string name = {};
  SnapshotWriting writing = SnapshotWriting::foreground;
  SnapshotBusy busy = SnapshotBusy::wait;
  SnapshotFailure on_failure = SnapshotFailure::stop;
  std::int64_t load_attempts = 2;
  std::int64_t keep_last = 2;
  std::int64_t keep_best = 0;
  std::int64_t keep_every = 0;
  std::int64_t keep_every_epochs = 0;
  double keep_every_time = 0.0;

  Retention retention() const {
    return {.last = keep_last,
            .best = keep_best,
            .metric = "loss",
            .every_steps = keep_every,
            .every_epochs = keep_every_epochs,
            .every_seconds = keep_every_time};
  }

  static constexpr auto describe() {
    return fields(
        field<&SnapshotConfig::name>(
            "Snapshot to begin with, unless save_dir has one: PLACE, PLACE:STEP or PLACE:best; "
            "snapshot=... says the same",
            Resume::free),
        field<&SnapshotConfig::writing>("Training waits until a snapshot is written, or only until its state is copied",
                                        Resume::free),
        field<&SnapshotConfig::busy>("A snapshot that is due while the last one is being written waits, or is left out",
                                     Resume::free),
        field<&SnapshotConfig::on_failure>(
            "When a snapshot cannot be written the run stops, or goes on with a warning; the last one of a run must be",
            Resume::free),
        field<&SnapshotConfig::load_attempts>("Starts that may be killed while they read a snapshot until the other "
                                              "snapshots are tried before it; 0 counts none",
                                              at_least(0), Resume::free),
        field<&SnapshotConfig::keep_last>("Newest snapshots that are kept; 0 keeps all", at_least(0), Resume::free),
        field<&SnapshotConfig::keep_best>("Kept as well: the snapshots with the lowest loss on the validation data",
                                          at_least(0), Resume::free),
        field<&SnapshotConfig::keep_every>("Kept as well: the snapshots of every so many steps; 0 is none", at_least(0),
                                           Unit::steps, Resume::free),
        field<&SnapshotConfig::keep_every_epochs>(
            "Kept as well: the first snapshot after each so many complete epochs; 0 is none", at_least(0), Unit::epochs,
            Resume::free),
        field<&SnapshotConfig::keep_every_time>(
            "Kept as well: the oldest snapshot, and each that was written so long after the last of these; 0 is none",
            at_least(0.0), Unit::seconds, Resume::free));
  }
};

}  // namespace ddpxx
