// ddpxx/snapshot/snapshot_config.hpp — what a user may set about how snapshots are written and kept.
#pragma once

#include <array>
#include <cstdint>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/snapshot/retention.hpp>

namespace ddpxx {

/// Whether training waits until a snapshot is written, or only until its state is copied.
enum class SnapshotWriting { foreground, background };
/// What happens to a snapshot that is due while the one before is still being written.
enum class SnapshotBusy { wait, skip };

constexpr auto enum_names(SnapshotWriting) {
  return std::array{Named{SnapshotWriting::foreground, "foreground"}, Named{SnapshotWriting::background, "background"}};
}
constexpr auto enum_names(SnapshotBusy) {
  return std::array{Named{SnapshotBusy::wait, "wait"}, Named{SnapshotBusy::skip, "skip"}};
}

struct SnapshotConfig {
  SnapshotWriting writing = SnapshotWriting::foreground;
  SnapshotBusy busy = SnapshotBusy::wait;
  std::int64_t keep_last = 2;
  std::int64_t keep_best = 0;
  std::int64_t keep_every = 0;

  Retention retention() const {
    return {.last = keep_last, .best = keep_best, .metric = "loss", .every_steps = keep_every};
  }

  static constexpr auto describe() {
    return fields(
        field<&SnapshotConfig::writing>("Training waits until a snapshot is written, or only until its state is copied",
                                        Resume::free),
        field<&SnapshotConfig::busy>("A snapshot that is due while the last one is being written waits, or is left out",
                                     Resume::free),
        field<&SnapshotConfig::keep_last>("Newest snapshots that are kept; 0 keeps all", at_least(0), Resume::free),
        field<&SnapshotConfig::keep_best>("Kept as well: the snapshots with the lowest loss on the validation data",
                                          at_least(0), Resume::free),
        field<&SnapshotConfig::keep_every>("Kept as well: the snapshots of every so many steps; 0 is none", at_least(0),
                                           Unit::steps, Resume::free));
  }
};

}  // namespace ddpxx
