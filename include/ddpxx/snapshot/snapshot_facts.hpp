// ddpxx/snapshot/snapshot_facts.hpp — what pruning needs to know of each snapshot, kept from the manifests that were
// read.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/retention.hpp>
#include <ddpxx/snapshot/stored_snapshot.hpp>

namespace ddpxx::detail {

/// What pruning needs to know of a snapshot.
struct SnapshotFacts {
  RetainedSnapshot retained;
  std::string start;                           ///< The name of the start that wrote it.
  std::map<std::string, std::uint64_t> files;  ///< Sizes by name.
};

/// Facts by step. They save reading each manifest at each save.
class SnapshotFactsCache {
 public:
  void remember(const Manifest& manifest);

  /// Returns the facts; null if the manifest was never read, or files are missing or changed in size.
  const SnapshotFacts* find(const StoredSnapshot& stored) const;

 private:
  std::map<std::int64_t, SnapshotFacts> facts_;
};

}  // namespace ddpxx::detail

#ifndef DDPXX_CORE
#include <ddpxx/snapshot/snapshot_facts_inl.hpp>
#endif
