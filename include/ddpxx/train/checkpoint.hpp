// ddpxx/train/checkpoint.hpp — saving and resuming as all ranks do it together: each its own part, all or none.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/on_every_rank.hpp>
#include <ddpxx/comm/on_rank_zero.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/failpoint.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/core/stop_signals.hpp>
#include <ddpxx/data/cursor.hpp>
#include <ddpxx/layers/random_state.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/snapshot/shard.hpp>
#include <ddpxx/snapshot/snapshot_config.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/snapshot/start_name.hpp>
#include <ddpxx/storage/open_storage.hpp>
#include <ddpxx/train/load_attempt.hpp>
#include <ddpxx/train/read_state.hpp>
#include <ddpxx/train/run_state.hpp>

namespace ddpxx {

/// Where a run stands, apart from its tensors.
struct Progression {
  std::int64_t step = 0;
  Cursor cursor;
  Settings settings;
  std::map<std::string, double> metrics;
  std::vector<OptimizedParameter> parameters = {};  ///< In the order in which the model registers them.
  std::string overrides = {};                       ///< The arguments that set something: a YAML list.
  std::string config_hash = {};                     ///< A name for the configuration.
  std::int64_t tokens = 0;                          ///< Targets that all ranks together have trained on.
  bool has_optimizer = true;                        ///< False for a snapshot that holds a model alone.
};

/// A run's snapshots at one place. Each rank writes what it holds; when all have told what they wrote, rank 0 publishes
/// the manifest, and only then there is a snapshot. Each rank reads what it will hold, whoever wrote it.
/// Ranks   Every operation is collective, but for `written()`.
/// Errors  `storage`, on every rank; older snapshots are then untouched.
class Checkpoints {
 public:
  /// Finds out whether snapshots can be written to `place`. Rank 0 calls `on_saved` for each snapshot once all ranks
  /// know of it, in one of the deeds below. Snapshots go to `storage`; null opens `place`.
  Checkpoints(const std::string& place, const SnapshotConfig& config, const Group& group, at::Device device,
              std::function<void(const SnapshotSaved&)> on_saved = {}, std::shared_ptr<Storage> storage = {})
      : config_{config},
        group_{&group},
        device_{device},
        on_saved_{std::move(on_saved)},
        log_{group.rank()},
        storage_{storage ? std::move(storage) : open_storage(place)},
        snapshots_{*storage_},
        attempt_{snapshots_, config.load_attempts, log_} {
    on_rank_zero(group, Errc::storage, [&] {
      try {
        storage_->prepare();
        has_place_ = storage_->claim("process " + std::to_string(::getpid()) + " on " + host_name());
        for (const auto& link : snapshots_.linked_folders())
          throw Error{Errc::storage,
                      link + " is a symbolic link, and a folder is expected: replace the link by the folder itself"};
      } catch (const Error& error) {
        throw Error{error.code(), "no snapshot can be written to " + place + ": choose another training.save_dir"}.with(
            "cause", error.what());
      }
    });
    starts_.push_back(broadcast_text(draw_start_name(), group));
  }
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  /// Saves the run. In the background, returns as soon as the state is copied; `commit` is due later.
  /// False if it was left out, since the last one is still being written or published, or failed and the run goes on
  /// all the same.
  bool save(const Progression& run, const RunState& state, Copies copies) {
    if (config_.busy == SnapshotBusy::skip && !is_idle(run.step)) {
      log_.info("no snapshot of step " + std::to_string(run.step) +
                ": the last one is still being written or published");
      return false;
    }
    commit();
    const auto begun = Clock::now();
    Manifest manifest;
    manifest.step = run.step;
    manifest.epoch = run.cursor.epoch;
    manifest.position = run.cursor.position;
    manifest.world_size = group_->size();
    manifest.written_at = seconds_since_1970();
    manifest.starts = starts_;
    for (const auto& [name, value] : run.metrics)
      if (std::isfinite(value)) manifest.metrics.emplace(name, value);
    manifest.settings = run.settings;
    manifest.parameters = run.parameters;
    manifest.optimizer = state.optimizer;
    manifest.overrides = run.overrides;
    manifest.config_hash = run.config_hash;
    manifest.tokens = run.tokens;
    const bool background = config_.writing == SnapshotWriting::background;
    // What fails on one rank is told by `commit`, where all ranks meet.
    std::future<std::string> report;
    try {
      report = start_writing(state, copies, Snapshots::folder_of(run.step), background);
    } catch (const std::exception&) {
      std::promise<std::string> failed;
      failed.set_exception(std::current_exception());
      report = failed.get_future();
    }
    writing_ = Writing{.step = run.step,
                       .since = run.step,
                       .manifest = std::move(manifest),
                       .report = std::move(report),
                       .publishing = {},
                       .clearing = {},
                       .begun = begun,
                       .waited = Clock::now() - begun};
    return background || commit();
  }

  /// Whether a snapshot is under way and this rank has done with its part: first its file, then, on rank 0, publishing;
  /// of one that failed, removing its file.
  bool written() const {
    if (!writing_) return false;
    if (writing_->clearing) return is_done(*writing_->clearing);
    return writing_->publishing ? is_done(*writing_->publishing) : is_done(writing_->report);
  }
  /// The step after which that part was begun; none if there is none. What a rank told before is of the part before.
  std::optional<std::int64_t> writing_since() const { return writing_ ? std::optional{writing_->since} : std::nullopt; }

  /// All ranks have done with their parts: the next one, or the end. `step` is where the run stands.
  void advance(std::int64_t step) {
    if (!writing_) return;
    if (writing_->clearing) return finish_clearing();
    handle_failure([&] {
      if (writing_->publishing) return finish_publishing();
      begin_publishing();
    });
    if (writing_) writing_->since = step;
  }

  /// Waits for all ranks, and makes what they have written a snapshot. Nothing if nothing is being written.
  /// False if that failed and the run goes on all the same, as the configuration wants it.
  bool commit() {
    if (!writing_) return true;
    const bool published = !writing_->clearing && handle_failure([&] {
      if (!writing_->publishing) begin_publishing();
      finish_publishing();
    });
    if (writing_) finish_clearing();
    return published;
  }

  /// From now on a snapshot that fails is an error whatever the configuration says: the last one of a run.
  void stop_on_failure() noexcept { config_.on_failure = SnapshotFailure::stop; }

  /// Loads the newest snapshot that is whole into the run's state; none where there is no snapshot.
  /// A damaged one is reported, set aside, and the one before is taken; one that several starts were killed on while
  /// they read it is tried after all others. At another world size the ranks draw new random numbers, from seed, rank
  /// and step. Errors  also when there are snapshots and none of them is whole, or one is of another model or run.
  std::optional<Progression> load(const Settings& settings, const RunState& state, std::uint64_t seed) {
    StopSignals signals;  // held back until the count is removed: a signal that can be told from a crash does not count
    try {
      auto loaded = [&] {
        std::optional<ForgetOnSignal> watch;
        if (group_->rank() == 0) watch.emplace(attempt_, signals);
        return load_newest(settings, state, seed);
      }();
      signals.raise_again();
      return loaded;
    } catch (const Error& error) {
      // A lost peer may have been killed by what it read. Any other error has a known cause and does not count.
      if (error.code() != Errc::peer) attempt_.forget();
      throw;
    } catch (...) {
      attempt_.forget();
      throw;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  struct Writing {
    std::int64_t step;
    std::int64_t since;  ///< Where the run stood when the part that is under way was begun.
    Manifest manifest;
    std::future<std::string> report;              ///< Its destructor waits for the thread.
    std::optional<std::future<void>> publishing;  ///< Of rank 0; without content on the others. Likewise.
    std::optional<std::future<void>> clearing;    ///< Of a snapshot that failed and did not end the run. Likewise.
    Clock::time_point begun;
    Clock::duration waited;                   ///< As long has training stood still for it,
    Clock::time_point waiting_since = begun;  ///< and since then if it does so now.
  };

  static constexpr std::size_t kMaxStarts = 100;

  template <class Content>
  static bool is_done(const std::future<Content>& future) {
    return !future.valid() || future.wait_for(std::chrono::seconds{0}) != std::future_status::timeout;
  }

  std::launch policy() const {
    return config_.writing == SnapshotWriting::background ? std::launch::async : std::launch::deferred;
  }

  /// Begins `deed` where the configuration wants it done. Where no thread is left it is done once its result is asked
  /// for: the others must not wait for a rank that has thrown.
  template <class Deed>
  std::future<std::invoke_result_t<Deed>> begin(const Deed& deed) const {
    try {
      return std::async(policy(), deed);
    } catch (const std::system_error&) {
      return std::async(std::launch::deferred, deed);
    }
  }

  /// Does `deed` for the snapshot under way. Returns false if it fails and the run goes on all the same: what was
  /// written of it is then being cleared. That another run has the place is no failure that passes.
  /// Ranks   Collective; every rank comes to the same verdict.
  template <class Deed>
  bool handle_failure(Deed&& deed) {
    writing_->waiting_since = Clock::now();
    try {
      std::forward<Deed>(deed)();
      if (writing_) writing_->waited += Clock::now() - writing_->waiting_since;
      return true;
    } catch (const Error& error) {
      if (error.code() != Errc::storage && error.code() != Errc::memory) {
        writing_.reset();
        throw;
      }
      // Rank 0 alone knows what became of the manifest: another rank's look at the store may be an old one.
      const auto verdict = broadcast_text(
          std::string{has_lost_place_ ? "lost " : ""} + (in_doubt_.contains(writing_->step) ? "" : "removable"),
          *group_);
      const bool is_taken = verdict.starts_with("lost"), is_removable = verdict.ends_with("removable");
      if (is_taken || config_.on_failure == SnapshotFailure::stop) {
        if (is_removable) clear(writing_->step);
        writing_.reset();
        throw;
      }
      ++failures_;
      std::string text = error.what();
      std::replace(text.begin(), text.end(), '\n', ' ');
      if (group_->rank() == 0)
        log_.warn("the snapshot of step " + std::to_string(writing_->step) +
                  " failed and training goes on; failed snapshots of this run: " + std::to_string(failures_) +
                  "; the reason: " + text);
      writing_->clearing = begin([this, step = writing_->step, is_removable] {
        if (is_removable) clear(step);
      });
      return false;
    }
  }

  /// Gathers what the ranks have written; rank 0 begins to make it a snapshot.
  /// Ranks   Collective.
  void begin_publishing() {
    auto& writing = *writing_;
    std::string told;
    try {
      told = '{' + writing.report.get();
    } catch (const std::exception& cause) {
      const auto error = as_error(cause, Errc::storage);
      told = static_cast<char>(error.code()) + std::string{error.what()};
    }
    failpoint("checkpoint.after_shard");
    auto reports = all_gather_text(told, *group_);
    std::string failed;
    auto code = Errc::storage;
    for (std::size_t rank = 0; rank < reports.size(); ++rank) {
      const auto first = reports[rank].front();
      reports[rank].erase(0, 1);
      if (first == '{') continue;
      if (static_cast<Errc>(first) == Errc::memory) code = Errc::memory;
      failed += "\n  rank " + std::to_string(rank) + ": " + reports[rank];
    }
    if (!failed.empty())
      throw Error{code, "no snapshot of step " + std::to_string(writing.step) +
                            " was written; older ones are as they were:" + failed};
    writing.publishing.emplace();
    if (group_->rank() != 0) return;
    *writing.publishing =
        begin([this, begun = std::move(writing.manifest), reports, retention = config_.retention(), starts = starts_] {
          auto manifest = begun;
          add_reports(manifest, reports);
          auto conflict = found_ ? snapshots_.find_later_of_another(manifest, *found_) : std::nullopt;
          if (!conflict) conflict = publish(manifest);
          has_lost_place_ = conflict.has_value();
          if (conflict) throw Error{Errc::storage, *conflict};
          try {
            snapshots_.prune(retention, {.of_the_place = has_place_, .starts = starts});
          } catch (const Error& error) {
            log_.warn(std::string{"older snapshots were not removed: "} + error.what());
          }
        });
  }

  /// Ranks   Rank 0, which knows from now on whether the manifest may be there.
  std::optional<std::string> publish(const Manifest& manifest) {
    const auto step = manifest.step;
    try {
      in_doubt_.insert(step);
      auto conflict = snapshots_.try_publish(manifest);
      published_at_ = Clock::now();
      if (conflict) in_doubt_.erase(step);
      return conflict;
    } catch (const std::exception&) {
      // A request to a server may arrive after its answer was given up; what a disk refused is not done later.
      if (has_place_ && is_absent(step)) in_doubt_.erase(step);
      throw;
    }
  }

  /// Whether no manifest counts on this rank's file of a step; not where nobody can tell.
  bool is_absent(std::int64_t step) const {
    try {
      return !snapshots_.is_in_use(step, file_name());
    } catch (const Error&) {
      return false;
    }
  }

  /// Ranks   Collective.
  void finish_publishing() {
    on_rank_zero(*group_, Errc::storage, [&] { writing_->publishing->get(); });
    if (on_saved_ && group_->rank() == 0) {
      const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
      on_saved_({.step = writing_->step,
                 .path = storage_->whole_name(Snapshots::folder_of(writing_->step)),
                 .seconds = seconds(published_at_ - writing_->begun),
                 .waited_seconds = seconds(writing_->waited + (Clock::now() - writing_->waiting_since))});
    }
    writing_.reset();
  }

  /// Gives back the room of this rank's file of a step: on a full disk the next one needs it. A store that does not
  /// answer may take its time. What stays, since it may be part of a snapshot, is removed by pruning if it is not.
  /// Ranks   Local.
  void clear(std::int64_t step) const {
    try {
      storage_->remove(Snapshots::folder_of(step) + file_name());
    } catch (const std::exception& error) {
      log_.warn(first_line(error));
    }
  }

  /// Ranks   Collective.
  void finish_clearing() {
    writing_->clearing->get();
    writing_.reset();
    barrier(*group_);  // a folder goes with its last file, and the next save may be of this step
  }

  std::optional<Progression> load_newest(const Settings& settings, const RunState& state, std::uint64_t seed) {
    std::vector<StoredSnapshot> found;
    on_rank_zero(*group_, Errc::storage, [&] {
      for (auto& stored : snapshots_.list())
        if (stored.published)
          found.push_back(std::move(stored));
        else if (!stored.set_aside)
          log_.warn(storage_->whole_name(stored.folder) + " has no " + Snapshots::kManifest +
                    " and is no snapshot: its save did not come to its end, or the manifest got lost");
      found_.emplace();
      for (const auto& stored : found) found_->insert(stored.step);
      attempt_.put_last(found);
    });
    std::vector<std::string> damages;
    std::vector<StoredRange> unreadable;  // by this rank
    for (std::size_t i = 0;; ++i) {
      std::string text;  // empty: no snapshot is left
      std::string damage;
      on_rank_zero(*group_, Errc::storage, [&] {
        if (i == found.size()) return;
        text = " ";
        attempt_.begin(found[i], found);
        const auto snapshot = snapshots_.read(found[i]);
        damage = snapshot.damage;
        if (snapshot.unreadable) unreadable.push_back(*snapshot.unreadable);
        if (snapshot.manifest) text = print_manifest(*snapshot.manifest);
      });
      text = broadcast_text(text, *group_);
      if (text.empty()) break;
      damage = broadcast_text(damage, *group_);
      if (damage.empty()) {
        const auto manifest = parse_manifest(text);
        for (const auto& warning : compare_settings(settings, manifest))
          if (group_->rank() == 0) log_.warn(warning);
        check_state(state, manifest);
        const auto met = read_state(*storage_, manifest, state, *group_, device_, seed);
        damage = met.text;
        if (met.unreadable) unreadable.push_back(*met.unreadable);
        if (damage.empty()) {
          check_still_unreadable(unreadable);
          on_rank_zero(*group_, Errc::storage, [&] {
            attempt_.forget();  // the ranks have shared that all of them have read it
            // Newer ones are damaged, or starts were killed on them: this run saves their steps again.
            for (const auto& stored : found)
              if (stored.step > manifest.step) snapshots_.set_aside(stored);
          });
          log_.info("resumed at step " + std::to_string(manifest.step) + " from " +
                    storage_->whole_name(Snapshots::folder_of(manifest.step)));
          const auto known = std::min<std::size_t>(manifest.starts.size(), kMaxStarts);
          starts_.insert(starts_.begin(), manifest.starts.end() - static_cast<std::ptrdiff_t>(known),
                         manifest.starts.end());
          failpoint("checkpoint.after_load");
          return Progression{.step = manifest.step,
                             .cursor = {manifest.epoch, manifest.position},
                             .settings = {},
                             .metrics = {},
                             .tokens = manifest.tokens,
                             .has_optimizer = !lacks_optimizer(manifest)};
        }
      }
      attempt_.forget();
      if (group_->rank() == 0)
        log_.warn(damage +
                  (i + 1 < found.size() ? "; trying the one of step " + std::to_string(found[i + 1].step) : ""));
      damages.push_back(damage);
    }
    if (damages.empty()) return std::nullopt;
    std::string text = std::to_string(damages.size()) + " snapshots found at " + storage_->whole_name("") +
                       ", and none is usable; a fresh start needs another save_dir:";
    for (const auto& damage : damages) text += "\n  " + damage;
    throw Error{Errc::storage, text};
  }

  /// Before snapshots are set aside: what could not be read is tried once more. A file server that did not answer for a
  /// while may have reported what a damaged disk reports.
  /// Ranks   Collective; each tries what it could not read itself.
  /// Errors  `storage` on every rank where a range can be read now: a restart then loads that snapshot.
  void check_still_unreadable(const std::vector<StoredRange>& unreadable) {
    on_every_rank(*group_, Errc::storage, [&] {
      for (const auto& range : unreadable)
        if (is_readable_now(*storage_, range))
          throw Error{Errc::storage, storage_->whole_name(range.name) +
                                         " could not be read before and can be read now: nothing was set aside; start "
                                         "the run again, so that it goes on with that snapshot"};
      return true;
    });
  }

  std::string file_name() const {
    return "rank-" + std::to_string(group_->rank()) + "-of-" + std::to_string(group_->size()) + '.' + starts_.back() +
           ".safetensors";
  }

  std::future<std::string> start_writing(const RunState& state, Copies copies, const std::string& folder,
                                         bool background) {
    auto slices = slices_to_write(state, *group_, copies);
    slices.push_back(whole_slice("random." + std::to_string(group_->rank()), random_state(device_)));
    auto shard = std::make_shared<Shard>(file_name(), std::move(slices));
    if (background) shard->stage(buffer_);
    failpoint("checkpoint.before_shard");
    return std::async(policy(), [storage = storage_.get(), shard, folder] {
      shard->write(*storage, folder);
      return shard->report();
    });
  }

  static std::string host_name() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "an unknown host";
  }

  /// Takes what is under way as far as that goes without waiting; true if nothing is under way any more.
  /// Ranks   Collective.
  bool is_idle(std::int64_t step) {
    while (writing_ && written_everywhere()) advance(step);
    return !writing_;
  }

  bool written_everywhere() const {
    auto left = at::zeros({1}, at::TensorOptions{}.dtype(at::kLong));
    if (!written()) left.fill_(1);
    left = left.to(group_->device());
    all_reduce(left, *group_);
    return left.to(at::kCPU).item<std::int64_t>() == 0;
  }

  SnapshotConfig config_;
  const Group* group_;
  at::Device device_;
  std::function<void(const SnapshotSaved&)> on_saved_;
  Log log_;
  std::shared_ptr<Storage> storage_;
  Snapshots snapshots_;
  LoadAttempt attempt_;
  std::vector<std::string> starts_;  ///< This one is the last.
  bool has_place_ = false;           ///< On rank 0: nobody else writes there.
  bool has_lost_place_ = false;      ///< On rank 0: another run has published there what this one would have.
  std::optional<std::set<std::int64_t>> found_;  ///< On rank 0: the snapshots that were there when this run began.
  std::set<std::int64_t> in_doubt_;              ///< On rank 0: the steps whose manifest of this start may be there.
  Clock::time_point published_at_;               ///< On rank 0: when the last manifest was there.
  std::int64_t failures_ = 0;
  at::Tensor buffer_;  ///< Of the background's copy, reused. Outlives `writing_`.
  std::optional<Writing> writing_;
};

}  // namespace ddpxx
