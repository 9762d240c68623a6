// ddpxx/observe/metrics_file.hpp — the record of a run: a JSONL file with one row for each event.
#pragma once

#include <filesystem>
#include <string>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/observer.hpp>
#include <ddpxx/observe/row_file.hpp>

namespace ddpxx {

/// Writes rows of JSON as `RowFile` does. Each row starts with `step`; rows of evaluations and snapshots have no
/// `loss`. A number that is not finite is written as null. A metric of the model's own stands under its name, in the
/// rows of evaluations with `val_` in front.
class MetricsFile : public Observer {
 public:
  /// Errors  those of RowFile.
  explicit MetricsFile(std::filesystem::path path, Log log = Log{0});

  DDPXX_INLINE std::string name() const override;

  DDPXX_INLINE void on_begin(const RunBegan& run) override;
  DDPXX_INLINE Verdict on_step(const StepDone& event) override;
  DDPXX_INLINE Verdict on_evaluated(const Evaluated& event) override;
  DDPXX_INLINE void on_snapshot(const SnapshotSaved& event) override;
  DDPXX_INLINE void on_end(const RunEnded&) override;

 private:
  RowFile file_;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/observe/metrics_file_inl.hpp>
#endif
