// ddpxx/train/snapshot_loader.hpp — resumes a run from the newest snapshot that is whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Device.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/on_every_rank.hpp>
#include <ddpxx/comm/on_rank_zero.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/failpoint.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/core/stop_signals.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/storage/storage.hpp>
#include <ddpxx/train/load_attempt.hpp>
#include <ddpxx/train/loaded_run.hpp>
#include <ddpxx/train/read_state.hpp>
#include <ddpxx/train/run_state.hpp>
#include <ddpxx/train/snapshot_history.hpp>

namespace ddpxx {

/// Loads a run's newest snapshot; each rank reads what it will hold, whichever rank wrote it. Rank 0 finds the
/// snapshots and reads their manifests; a snapshot counts as damaged if any rank finds damage.
class SnapshotLoader {
 public:
  /// `load_attempts` is the number of starts that may be killed while they read a snapshot, before the other snapshots
  /// are tried first; 0 counts none.
  SnapshotLoader(std::shared_ptr<SnapshotHistory> history, std::int64_t load_attempts, const Group& group,
                 at::Device device)
      : history_{std::move(history)},
        group_{&group},
        device_{device},
        log_{group.rank()},
        attempt_{history_->snapshots(), load_attempts, log_} {}
  SnapshotLoader(const SnapshotLoader&) = delete;
  SnapshotLoader& operator=(const SnapshotLoader&) = delete;

  /// Loads the newest snapshot that is whole into `state`. Returns none if there is no snapshot. A damaged snapshot is
  /// a warning, and the one before it is tried. Once one is loaded, newer ones are set aside: the run will save their
  /// steps again. At another world size the ranks draw new random numbers, from seed, rank and step.
  /// Ranks   Collective.
  /// Errors  `storage` on every rank if there are snapshots and none is whole, or if the snapshot is of another model
  ///         or run.
  std::optional<LoadedRun> load(const Settings& settings, const RunState& state, std::uint64_t seed) {
    // Signals are held back until the attempt's count is removed: a start that a signal ends does not count.
    StopSignals signals;
    try {
      auto loaded = [&] {
        std::optional<EndAttemptOnSignal> watch;
        if (group_->rank() == 0) watch.emplace(attempt_, signals);
        return load_newest(settings, state, seed);
      }();
      signals.raise_again();
      return loaded;
    } catch (const Error& error) {
      // A lost peer may have been killed by what it read. Any other error has a known cause and does not count.
      if (error.code() != Errc::peer) attempt_.end();
      throw;
    } catch (...) {
      attempt_.end();
      throw;
    }
  }

 private:
  /// A snapshot as rank 0 has found it: its manifest, or the text of its damage.
  struct Candidate {
    std::string manifest;
    std::string damage;
  };

  std::optional<LoadedRun> load_newest(const Settings& settings, const RunState& state, std::uint64_t seed) {
    const auto found = find_snapshots();
    const auto check = [&](const Manifest& manifest) {
      for (const auto& warning : compare_settings(settings, manifest))
        if (group_->rank() == 0) log_.warn(warning);
      check_state(state, manifest);
    };
    std::vector<std::string> damages;
    std::vector<StoredRange> unreadable;  // by this rank
    for (std::size_t i = 0;; ++i) {
      const auto candidate = read_candidate(found, i, check, unreadable);
      if (!candidate) break;
      auto damage = candidate->damage;
      if (damage.empty()) {
        const auto manifest = parse_manifest(candidate->manifest);
        if (group_->rank() != 0) check(manifest);
        const auto result = read_state(history_->storage(), manifest, state, *group_, device_, seed);
        if (result.unreadable) unreadable.push_back(*result.unreadable);
        if (result.text.empty()) return accept(state, manifest, found, unreadable);
        damage = result.text;
      }
      attempt_.end();
      if (group_->rank() == 0)
        log_.warn(damage +
                  (i + 1 < found.size() ? "; trying the one of step " + std::to_string(found[i + 1].step) : ""));
      damages.push_back(damage);
    }
    if (damages.empty()) return std::nullopt;
    std::string text = std::to_string(damages.size()) + " snapshots found at " + history_->storage().full_name("") +
                       ", and none is usable; a fresh start needs another save_dir:";
    for (const auto& damage : damages) text += "\n  " + damage;
    throw Error{Errc::storage, text};
  }

  /// Returns the snapshots in the order in which they are tried; on ranks other than 0, none.
  /// Ranks   Collective.
  std::vector<StoredSnapshot> find_snapshots() {
    std::vector<StoredSnapshot> found;
    on_rank_zero(*group_, Errc::storage, [&] {
      std::set<std::int64_t> steps;
      for (auto& stored : history_->snapshots().list()) {
        if (stored.committed) {
          steps.insert(stored.step);
          found.push_back(std::move(stored));
        } else if (!stored.set_aside) {
          log_.warn(history_->storage().full_name(stored.folder) + " has no " + Snapshots::kManifest +
                    " and is not a snapshot: its save did not come to its end, or the manifest got lost");
        }
      }
      history_->set_steps_at_start(std::move(steps));
      attempt_.put_last(found);
    });
    return found;
  }

  /// Rank 0 counts the attempt, reads the manifest of `found[i]` and calls `check` with it; all ranks return what it
  /// found, or none if there is no such snapshot.
  /// Ranks   Collective.
  /// Errors  those of rank 0, which has removed the count by then: a launcher may end rank 0 at once when it sees that
  ///         another rank has failed.
  std::optional<Candidate> read_candidate(const std::vector<StoredSnapshot>& found, std::size_t i,
                                          const std::function<void(const Manifest&)>& check,
                                          std::vector<StoredRange>& unreadable) {
    std::string text;  // empty if no snapshot is left
    std::string damage;
    on_rank_zero(*group_, Errc::storage, [&] {
      if (i == found.size()) return;
      text = " ";
      attempt_.begin(found[i], found);
      try {
        const auto snapshot = history_->snapshots().read(found[i]);
        damage = snapshot.damage;
        if (snapshot.unreadable) unreadable.push_back(*snapshot.unreadable);
        if (!snapshot.manifest) return;
        check(*snapshot.manifest);
        text = print_manifest(*snapshot.manifest);
      } catch (...) {
        attempt_.end();
        throw;
      }
    });
    text = broadcast_text(text, *group_);
    if (text.empty()) return std::nullopt;
    return Candidate{std::move(text), broadcast_text(damage, *group_)};
  }

  /// The state was read from this snapshot on all ranks: the run resumes from it.
  /// Ranks   Collective.
  LoadedRun accept(const RunState& state, const Manifest& manifest, const std::vector<StoredSnapshot>& found,
                   const std::vector<StoredRange>& unreadable) {
    check_still_unreadable(unreadable);
    on_rank_zero(*group_, Errc::storage, [&] {
      attempt_.end();
      for (const auto& stored : found)
        if (stored.step > manifest.run.step) history_->snapshots().set_aside(stored);
    });
    log_.info("resumed at step " + std::to_string(manifest.run.step) + " from " +
              history_->storage().full_name(Snapshots::folder_of(manifest.run.step)));
    history_->continue_from(manifest);
    failpoint("checkpoint.after_load");
    return {manifest.run, held_state(state, manifest), manifest.written_at};
  }

  /// Before snapshots are set aside, each rank tries once more to read what it could not read. A file server that did
  /// not answer for a while may have reported what a damaged disk reports.
  /// Ranks   Collective.
  /// Errors  `storage` on every rank if a range can be read now: a restart then loads that snapshot.
  void check_still_unreadable(const std::vector<StoredRange>& unreadable) {
    on_every_rank(*group_, Errc::storage, [&] {
      for (const auto& range : unreadable)
        if (is_readable_now(history_->storage(), range))
          throw Error{Errc::storage, history_->storage().full_name(range.name) +
                                         " could not be read before and can be read now: nothing was set aside; start "
                                         "the run again, so that it goes on with that snapshot"};
      return true;
    });
  }

  std::shared_ptr<SnapshotHistory> history_;
  const Group* group_;
  at::Device device_;
  Log log_;
  LoadAttempt attempt_;
};

}  // namespace ddpxx
