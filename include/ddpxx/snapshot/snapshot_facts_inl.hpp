// ddpxx/snapshot/snapshot_facts_inl.hpp — the definitions of snapshot_facts.hpp.
#pragma once

#include <algorithm>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/snapshot_facts.hpp>
#include <ddpxx/snapshot/stored_snapshot.hpp>

namespace ddpxx::detail {

DDPXX_INLINE void SnapshotFactsCache::remember(const Manifest& manifest) {
  auto& facts = facts_[manifest.run.step];
  facts = {{manifest.run.step, manifest.run.metrics, manifest.run.epoch, manifest.written_at},
           manifest.starts.empty() ? "" : manifest.starts.back(),
           {}};
  for (const auto& file : manifest.files) facts.files.emplace(file.name, file.bytes);
}

DDPXX_INLINE const SnapshotFacts* SnapshotFactsCache::find(const StoredSnapshot& stored) const {
  const auto facts = facts_.find(stored.step);
  if (facts == facts_.end() || !stored.committed) return nullptr;
  const auto is_there = [&](const auto& file) {
    const auto there = stored.sizes.find(file.first);
    return there != stored.sizes.end() && there->second == file.second;
  };
  return std::ranges::all_of(facts->second.files, is_there) ? &facts->second : nullptr;
}

}  // namespace ddpxx::detail
