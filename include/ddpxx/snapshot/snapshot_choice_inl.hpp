// ddpxx/snapshot/snapshot_choice_inl.hpp — the definitions of snapshot_choice.hpp.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/ranking.hpp>
#include <ddpxx/snapshot/snapshot_choice.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

DDPXX_INLINE SnapshotChoice parse_snapshot_choice(const std::string& text) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) return {.place = text};
  const auto choice = std::string_view{text}.substr(colon + 1);
  if (choice == "best") return {.place = text.substr(0, colon), .best = true};
  std::int64_t step = 0;
  const auto [end, status] = std::from_chars(choice.data(), choice.data() + choice.size(), step);
  if (status != std::errc{} || end != choice.data() + choice.size() || step < 0) return {.place = text};
  return {.place = text.substr(0, colon), .step = step};
}

DDPXX_INLINE std::optional<SnapshotChoice> snapshot_of_step_folder(Storage& storage) {
  auto name = storage.full_name("");
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  const auto slash = name.rfind('/');
  const auto folder = slash == std::string::npos ? name : name.substr(slash + 1);
  const auto step = Snapshots::step_of(folder + '/');
  if (!step) return std::nullopt;
  const auto is_manifest = [](const StoredObject& object) { return object.name == Snapshots::kManifest; };
  if (std::ranges::none_of(storage.list(Snapshots::kManifest), is_manifest)) return std::nullopt;
  return SnapshotChoice{.place = slash == std::string::npos ? "." : name.substr(0, std::max<std::size_t>(slash, 1)),
                        .step = step};
}

namespace detail {

/// The folder on a disk whose name is that of a choice, such as runs/a:300; empty if there is none.
inline std::string folder_of_that_name(const Storage& storage, const SnapshotChoice& choice) {
  auto name = storage.full_name("");
  if (choice.is_newest() || name.find("://") != std::string::npos) return {};
  while (name.ends_with('/')) name.pop_back();
  name += ':' + (choice.best ? "best" : std::to_string(*choice.step));
  std::error_code unknown;
  return std::filesystem::is_directory(name, unknown) ? name : std::string{};
}

inline std::string without_metric(const Ranking& ranking) {
  return ranking.metric == "loss" ? " with a validation loss" : " with the metric " + harmless(ranking.metric);
}

}  // namespace detail

DDPXX_INLINE Manifest choose_snapshot(Storage& storage, const SnapshotChoice& choice,
                                      const std::function<void(const std::string&)>& on_skipped) {
  const Snapshots snapshots{storage};
  std::optional<Manifest> best;
  std::optional<Ranking> ranking;  // of the newest snapshot: a resumed run may have changed it
  std::string others, damages;
  std::set<std::string> told;
  auto all = snapshots.list();
  int listings = 1;
  for (std::size_t i = 0; i < all.size();) {
    const auto& stored = all[i++];
    if (!stored.committed || (choice.before && stored.step >= *choice.before)) continue;
    if (choice.step && stored.step != *choice.step) {
      others += ' ' + std::to_string(stored.step);
      continue;
    }
    auto read = snapshots.read(stored);
    if (!read.manifest && listings < Snapshots::kMaxListings && !snapshots.is_there(stored.step)) {
      ++listings;
      all = snapshots.list();  // there is a newer one now, for which this one was removed
      best.reset();
      ranking.reset();
      others.clear();
      damages.clear();
      i = 0;
      continue;
    }
    if (!read.manifest) {
      if (choice.best)
        throw Error{Errc::storage, read.damage + "; it may be the best snapshot: choose one by its step"};
      damages += "\n  " + read.damage;
      if (on_skipped && told.insert(read.damage).second) on_skipped(read.damage);
      continue;
    }
    if (!choice.best) return std::move(*read.manifest);
    if (!ranking) ranking = recorded_ranking(read.manifest->run.settings);
    const auto& metrics = read.manifest->run.metrics;
    if (!metrics.contains(ranking->metric))
      others += ' ' + std::to_string(stored.step);
    else if (!best || ranking->is_better(metrics.at(ranking->metric), best->run.metrics.at(ranking->metric)))
      best = std::move(read.manifest);
  }
  if (best) return std::move(*best);
  std::string hint;
  if (const auto itself = snapshot_of_step_folder(storage))
    hint = ", which is one snapshot itself: name " + itself->place + ':' + std::to_string(*itself->step);
  else if (const auto folder = detail::folder_of_that_name(storage, choice); !folder.empty())
    hint = ", but a folder with the name " + folder + ": name " + folder + "/ for it";
  throw Error{Errc::storage, "there is no snapshot" + (choice.step ? " of step " + std::to_string(*choice.step) : "") +
                                 (choice.best ? detail::without_metric(ranking.value_or(Ranking{})) : "") +
                                 (choice.before ? " before step " + std::to_string(*choice.before) : "") + " at " +
                                 storage.full_name("") + hint + (others.empty() ? "" : "; there are" + others) +
                                 damages};
}

}  // namespace ddpxx
