// ddpxx/train/rank_file.hpp — this rank's part of a save: one file, and the report of what it holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/failpoint.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/layers/random_state.hpp>
#include <ddpxx/snapshot/shard.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/snapshot/state_slice.hpp>
#include <ddpxx/train/run_state.hpp>
#include <ddpxx/train/snapshot_history.hpp>
#include <ddpxx/train/task.hpp>

namespace ddpxx {

/// Writes the file that this rank adds to each snapshot, and removes it again.
/// Ranks   Local.
class RankFile {
 public:
  RankFile(std::shared_ptr<const SnapshotHistory> history, const Group& group, at::Device device, TaskRuns writing)
      : history_{std::move(history)}, group_{&group}, device_{device}, writing_{writing}, log_{group.rank()} {}

  /// Starts to write the file of a step; the future gives its report. In the background the state is copied first, and
  /// may change as soon as this returns.
  /// Errors  none here: every exception is in the future, so that the ranks meet before any of them throws.
  std::future<std::string> start_writing(const RunState& state, Copies copies, std::int64_t step) {
    try {
      auto slices = slices_to_write(state, *group_, copies);
      for (const auto& [name, device] : random_generators(group_->rank(), device_))
        slices.push_back(whole_slice(name, random_state(device)));
      auto shard = std::make_shared<Shard>(history_->file_name(), std::move(slices));
      if (writing_ == TaskRuns::in_background) shard->stage(buffer_);
      failpoint("checkpoint.before_shard");
      return start_task(writing_, [history = history_, shard, folder = Snapshots::folder_of(step)] {
        shard->write(history->storage(), folder);
        return shard->report();
      });
    } catch (const std::exception&) {
      std::promise<std::string> failed;
      failed.set_exception(std::current_exception());
      return failed.get_future();
    }
  }

  /// Removes the file of a step, so that the next save finds space on a full disk. A failure is a warning: pruning
  /// removes the file later.
  void remove(std::int64_t step) const {
    try {
      history_->storage().remove(Snapshots::folder_of(step) + history_->file_name());
    } catch (const std::exception& error) {
      log_.warn(first_line(error));
    }
  }

 private:
  std::shared_ptr<const SnapshotHistory> history_;
  const Group* group_;
  at::Device device_;
  TaskRuns writing_;
  Log log_;
  at::Tensor buffer_;  ///< Memory for the copy of the state, reused by each save. Must outlive the future.
};

/// Waits for this rank's file of a step and returns the reports of all ranks, in the order of the ranks.
/// Ranks   Collective.
/// Errors  `storage` or `memory` on every rank, with the text of each rank that failed.
inline std::vector<std::string> gather_reports(std::future<std::string>& own, std::int64_t step, const Group& group) {
  constexpr char kReport = '{';  // stands before a report; before an error's text stands its code
  std::string text;
  try {
    text = kReport + own.get();
  } catch (const std::exception& cause) {
    const auto error = as_error(cause, Errc::storage);
    text = static_cast<char>(error.code()) + std::string{error.what()};
  }
  failpoint("checkpoint.after_shard");
  auto reports = all_gather_text(text, group);
  std::string failed;
  auto code = Errc::storage;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const auto first = reports[rank].front();
    reports[rank].erase(0, 1);
    if (first == kReport) continue;
    if (static_cast<Errc>(first) == Errc::memory) code = Errc::memory;
    failed += "\n  rank " + std::to_string(rank) + ": " + reports[rank];
  }
  if (!failed.empty())
    throw Error{code,
                "no snapshot of step " + std::to_string(step) + " was written; older ones are as they were:" + failed};
  return reports;
}

}  // namespace ddpxx
