// ddpxx/train/checkpoint.hpp — saving and resuming as all ranks do it together: each its own part, all or none.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/on_rank_zero.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/failpoint.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/data/cursor.hpp>
#include <ddpxx/flat/random_state.hpp>
#include <ddpxx/snapshot/shard.hpp>
#include <ddpxx/snapshot/shard_reader.hpp>
#include <ddpxx/snapshot/snapshot_config.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/storage/open_storage.hpp>
#include <ddpxx/train/run_state.hpp>

namespace ddpxx {

/// Where a run stands, apart from its tensors.
struct Progression {
  std::int64_t step = 0;
  Cursor cursor;
  Settings settings;
  std::map<std::string, double> metrics;
};

/// A run's snapshots at one place. Each rank writes what it holds; when all have told what they wrote, rank 0 publishes
/// the manifest, and only then there is a snapshot. Each rank reads what it will hold, whoever wrote it.
/// Ranks   Every deed is collective, but for `written()`.
/// Errors  `storage`, on every rank; older snapshots are then untouched.
class Checkpoints {
 public:
  /// Finds out whether snapshots can be written to `place`.
  Checkpoints(const std::string& place, const SnapshotConfig& config, const Group& group, at::Device device)
      : config_{config},
        group_{&group},
        device_{device},
        log_{group.rank()},
        storage_{open_storage(place)},
        snapshots_{*storage_} {
    on_rank_zero(group, Errc::storage, [&] {
      try {
        storage_->prepare();
        has_place_ = storage_->claim("process " + std::to_string(::getpid()) + " on " + host_name());
      } catch (const Error& error) {
        throw Error{error.code(), "no snapshot can be written to " + place + ": choose another training.save_dir"}.with(
            "cause", error.what());
      }
    });
    starts_.push_back(broadcast_text(new_name(), group));
  }
  Checkpoints(const Checkpoints&) = delete;
  Checkpoints& operator=(const Checkpoints&) = delete;

  /// Saves the run. In the background, returns as soon as the state is copied; `commit` is due later.
  /// False if it was left out, since the last one is still being written.
  bool save(const Progression& run, const RunState& state, Copies copies) {
    if (writing_ && config_.busy == SnapshotBusy::skip && !written_everywhere()) {
      log_.info("no snapshot of step " + std::to_string(run.step) + ": the last one is still being written");
      return false;
    }
    commit();
    Manifest manifest;
    manifest.step = run.step;
    manifest.epoch = run.cursor.epoch;
    manifest.position = run.cursor.position;
    manifest.world_size = group_->size();
    manifest.starts = starts_;
    for (const auto& [name, value] : run.metrics)
      if (std::isfinite(value)) manifest.metrics.emplace(name, value);
    manifest.settings = run.settings;
    const auto file = Snapshots::folder_of(run.step) + file_name();
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
    writing_ = Writing{std::move(manifest), file, std::move(report)};
    if (!background) commit();
    return true;
  }

  /// Whether a snapshot is being written and this rank has done with its part.
  bool written() const {
    return writing_ && writing_->report.wait_for(std::chrono::seconds{0}) != std::future_status::timeout;
  }
  /// The step of the snapshot that is being written; none if there is none.
  std::optional<std::int64_t> writing() const {
    return writing_ ? std::optional{writing_->manifest.step} : std::nullopt;
  }

  /// Waits for all ranks, and makes what they have written a snapshot. Nothing if nothing is being written.
  void commit() {
    if (!writing_) return;
    auto writing = std::exchange(writing_, std::nullopt);
    std::string told;
    try {
      told = '{' + writing->report.get();
    } catch (const std::exception& error) {
      told = first_line(error);
    }
    failpoint("checkpoint.after_shard");
    auto reports = all_gather_text(told, *group_);
    std::string failed;
    for (std::size_t rank = 0; rank < reports.size(); ++rank) {
      if (reports[rank].starts_with("{{"))
        reports[rank].erase(0, 1);
      else
        failed += "\n  rank " + std::to_string(rank) + ": " + reports[rank];
    }
    if (!failed.empty()) {
      remove_quietly(writing->file);
      throw Error{Errc::storage, "no snapshot of step " + std::to_string(writing->manifest.step) +
                                     " was written; older ones are as they were:" + failed};
    }
    // From here on nothing is removed if something fails: the snapshot may be there, and only the answer lost.
    on_rank_zero(*group_, Errc::storage, [&] {
      add_reports(writing->manifest, reports);
      snapshots_.publish(writing->manifest);
      try {
        snapshots_.prune(config_.retention(), {.of_the_place = has_place_, .starts = starts_});
      } catch (const Error& error) {
        log_.warn(std::string{"older snapshots were not removed: "} + error.what());
      }
    });
  }

  /// Loads the newest snapshot that is whole into the run's state; none where there is no snapshot.
  /// A damaged one is reported, set aside, and the one before is taken. At another world size the ranks draw new random
  /// numbers, from the seed, their rank and the step.
  /// Errors  also when there are snapshots and none of them is whole, or one is of another model or run.
  std::optional<Progression> load(const Settings& settings, const RunState& state, std::uint64_t seed) {
    std::vector<StoredSnapshot> found;
    on_rank_zero(*group_, Errc::storage, [&] {
      for (auto& stored : snapshots_.list())
        if (stored.published) found.push_back(std::move(stored));
    });
    std::vector<std::string> damages;
    for (std::size_t i = 0;; ++i) {
      std::string text;  // empty: no snapshot is left
      std::string damage;
      on_rank_zero(*group_, Errc::storage, [&] {
        if (i == found.size()) return;
        const auto snapshot = snapshots_.read(found[i]);
        damage = snapshot.damage;
        text = snapshot.manifest ? print_manifest(*snapshot.manifest) : " ";
      });
      text = broadcast_text(text, *group_);
      if (text.empty()) break;
      damage = broadcast_text(damage, *group_);
      if (damage.empty()) {
        const auto manifest = parse_manifest(text);
        for (const auto& warning : compare_settings(settings, manifest))
          if (group_->rank() == 0) log_.warn(warning);
        check_state(state, manifest);
        damage = read_state(manifest, state, seed);
        if (damage.empty()) {
          on_rank_zero(*group_, Errc::storage, [&] {
            for (std::size_t newer = 0; newer < i; ++newer) snapshots_.set_aside(found[newer]);
          });
          log_.info("resumed at step " + std::to_string(manifest.step) + " from " +
                    storage_->whole_name(Snapshots::folder_of(manifest.step)));
          const auto known = std::min<std::size_t>(manifest.starts.size(), kMostStarts);
          starts_.insert(starts_.begin(), manifest.starts.end() - static_cast<std::ptrdiff_t>(known),
                         manifest.starts.end());
          return Progression{manifest.step, {manifest.epoch, manifest.position}, {}, {}};
        }
      }
      if (group_->rank() == 0) log_.warn(damage + "; trying the snapshot before it");
      damages.push_back(damage);
    }
    if (damages.empty()) return std::nullopt;
    std::string text = std::to_string(damages.size()) + " snapshots found at " + storage_->whole_name("") +
                       ", and none is usable; a fresh start needs another save_dir:";
    for (const auto& damage : damages) text += "\n  " + damage;
    throw Error{Errc::storage, text};
  }

 private:
  struct Writing {
    Manifest manifest;
    std::string file;
    std::future<std::string> report;  ///< Its destructor waits for the thread.
  };

  static constexpr std::size_t kMostStarts = 100;

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
    return std::async(background ? std::launch::async : std::launch::deferred,
                      [storage = storage_.get(), shard, folder] {
                        shard->write(*storage, folder);
                        return shard->report();
                      });
  }

  static std::string host_name() {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "an unknown host";
  }

  /// Twelve hexadecimal digits.
  static std::string new_name() {
    std::random_device random;
    std::string name;
    for (int i = 0; i < 12; ++i) name += "0123456789abcdef"[random() & 0xFU];
    return name;
  }

  bool written_everywhere() const {
    auto left = at::zeros({1}, at::TensorOptions{}.dtype(at::kLong));
    if (!written()) left.fill_(1);
    left = left.to(group_->device());
    all_reduce(left, *group_);
    return left.to(at::kCPU).item<std::int64_t>() == 0;
  }

  void remove_quietly(const std::string& file) {
    try {
      storage_->remove(file);
    } catch (const Error& error) {
      log_.warn(error.what());
    }
  }

  /// Reads what this rank will hold; returns the damage that any rank has met.
  std::string read_state(const Manifest& manifest, const RunState& state, std::uint64_t seed) {
    auto slices = slices_to_read(state);
    std::vector<at::Tensor> whole;
    for (const auto& [name, tensor] : state.whole) {
      whole.push_back(at::empty_like(tensor, at::kCPU, at::MemoryFormat::Contiguous));
      slices.push_back(whole_slice(name, whole.back()));
    }
    // Another world has other ranks, another device another kind of generator: both go on with fresh random numbers.
    const auto random = at::empty_like(random_state(device_));
    const auto random_name = "random." + std::to_string(group_->rank());
    const auto saved = manifest.tensors.find(random_name);
    const bool same_random = manifest.world_size == group_->size() && saved != manifest.tensors.end() &&
                             saved->second.dtype == random.scalar_type() &&
                             at::IntArrayRef{saved->second.shape} == random.sizes();
    if (same_random) slices.push_back(whole_slice(random_name, random));

    std::string failed, damage;
    try {
      ShardReader reader{*storage_, Snapshots::folder_of(manifest.step), manifest};
      damage = reader.read(slices).value_or("");
    } catch (const std::exception& error) {
      failed = first_line(error);
    }
    for (const auto& each : all_gather_text(failed, *group_))
      if (!each.empty()) throw Error{Errc::storage, each};
    for (const auto& each : all_gather_text(damage, *group_))
      if (!each.empty()) return each;

    const c10::NoGradGuard no_grad;
    for (const auto& part : state.parts) part.arena->publish_masters();
    for (std::size_t i = 0; i < whole.size(); ++i) at::Tensor{state.whole[i].second}.copy_(whole[i]);
    if (same_random)
      set_random_state(device_, random);
    else
      seed_random(device_, seed + static_cast<std::uint64_t>(group_->rank()) +
                               (static_cast<std::uint64_t>(manifest.step) << 20U));
    return {};
  }

  SnapshotConfig config_;
  const Group* group_;
  at::Device device_;
  Log log_;
  std::unique_ptr<Storage> storage_;
  Snapshots snapshots_;
  std::vector<std::string> starts_;  ///< This one is the last.
  bool has_place_ = false;           ///< On rank 0: nobody else writes there.
  at::Tensor buffer_;                ///< Of the background's copy, reused. Outlives `writing_`.
  std::optional<Writing> writing_;
};

}  // namespace ddpxx
