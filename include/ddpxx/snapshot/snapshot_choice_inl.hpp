// ddpxx/snapshot/snapshot_choice_inl.hpp — the definitions of snapshot_choice.hpp.
#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/snapshot/manifest.hpp>
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

DDPXX_INLINE Manifest choose_snapshot(Storage& storage, const SnapshotChoice& choice,
                                      const std::function<void(const std::string&)>& on_skipped) {
  const Snapshots snapshots{storage};
  std::optional<Manifest> best;
  std::string others;
  for (const auto& stored : snapshots.list()) {
    if (!stored.committed || (choice.before && stored.step >= *choice.before)) continue;
    if (choice.step && stored.step != *choice.step) {
      others += ' ' + std::to_string(stored.step);
      continue;
    }
    auto read = snapshots.read(stored);
    if (!read.manifest) {
      if (choice.best)
        throw Error{Errc::storage, read.damage + "; it may be the best snapshot: choose one by its step"};
      others += "\n  " + read.damage;
      if (on_skipped) on_skipped(read.damage);
      continue;
    }
    if (!choice.best) return std::move(*read.manifest);
    const auto loss = [](const Manifest& manifest) { return manifest.run.metrics.at("loss"); };
    if (!read.manifest->run.metrics.contains("loss"))
      others += ' ' + std::to_string(stored.step);
    else if (!best || loss(*read.manifest) < loss(*best))
      best = std::move(read.manifest);
  }
  if (best) return std::move(*best);
  throw Error{Errc::storage, "there is no snapshot" + (choice.step ? " of step " + std::to_string(*choice.step) : "") +
                                 (choice.best ? " with a validation loss" : "") +
                                 (choice.before ? " before step " + std::to_string(*choice.before) : "") + " at " +
                                 storage.full_name("") + (others.empty() ? "" : "; there are" + others)};
}

}  // namespace ddpxx
