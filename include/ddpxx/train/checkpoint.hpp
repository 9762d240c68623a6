// ddpxx/train/checkpoint.hpp — saving and resuming as all ranks do it together: one writes, one reads, all agree.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/on_rank_zero.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/data/cursor.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/train/run_state.hpp>

namespace ddpxx {

/// Where a run stands, apart from its tensors.
struct Progression {
  std::int64_t step = 0;
  Cursor cursor;
  Settings settings;
};

/// Saves the run: rank 0 writes `state`, which it has gathered, with the random numbers' state of every rank.
/// Ranks   Collective.
/// Errors  `storage`, on every rank; the old snapshot is then untouched.
inline void save_checkpoint(const std::string& directory, const Progression& run, NamedTensors state, at::Device device,
                            const Group& group) {
  const auto random = gather_random_states(device, group);
  on_rank_zero(group, Errc::storage, [&] {
    Snapshot snapshot{run.step, run.cursor.epoch, run.cursor.position, group.size(), run.settings, std::move(state)};
    for (int rank = 0; rank < group.size(); ++rank)
      snapshot.tensors.emplace("random." + std::to_string(rank), random[rank].clone());
    save_snapshot(directory, snapshot);
  });
}

/// Loads the snapshot in `directory` into the run's state, if there is one: rank 0 reads, and gives each its pieces.
/// At another world size the ranks draw new random numbers, from the seed, their rank and the step.
/// Ranks   Collective.
/// Errors  `storage`, on every rank: a damaged snapshot, or one of another model or run.
inline std::optional<Progression> load_checkpoint(const std::string& directory, const Settings& settings,
                                                  const RunState& run, at::Device device, std::uint64_t seed,
                                                  const Log& log, const Group& group) {
  NamedTensors state;
  auto facts = at::zeros({5}, at::TensorOptions{}.dtype(at::kLong));  // found, step, epoch, position, same random
  at::Tensor random = random_state(device).unsqueeze(0).repeat({group.size(), 1});
  on_rank_zero(group, Errc::storage, [&] {
    auto snapshot = load_snapshot(directory);
    if (!snapshot) return;
    for (const auto& warning : compare_settings(settings, *snapshot)) log.warn(warning);
    check_state(run, *snapshot);
    // Another world has other ranks, another device another kind of generator: both go on with fresh random numbers.
    bool same_random = snapshot->world_size == group.size();
    for (int rank = 0; same_random && rank < group.size(); ++rank) {
      const auto saved = snapshot->tensors.find("random." + std::to_string(rank));
      same_random = saved != snapshot->tensors.end() && saved->second.sizes() == random[rank].sizes();
      if (same_random) random[rank].copy_(saved->second);
    }
    const std::int64_t values[] = {1, snapshot->step, snapshot->epoch, snapshot->position, same_random ? 1 : 0};
    for (int i = 0; i < 5; ++i) facts[i].fill_(values[i]);
    state = std::move(snapshot->tensors);
  });
  facts = facts.to(group.device());
  broadcast(facts, group);
  facts = facts.to(at::kCPU);
  const auto* fact = facts.const_data_ptr<std::int64_t>();
  if (fact[0] == 0) return std::nullopt;

  scatter_state(run, state, group);
  if (fact[4] == 1) {
    random = random.to(group.device());
    broadcast(random, group);
    set_random_state(device, random.to(at::kCPU)[group.rank()].clone());
  } else {
    seed_random(device, seed + static_cast<std::uint64_t>(group.rank()) + (static_cast<std::uint64_t>(fact[1]) << 20U));
  }
  log.info("resumed at step " + std::to_string(fact[1]) + " from " + snapshot_path(directory).string());
  return Progression{fact[1], {fact[2], fact[3]}, {}};
}

}  // namespace ddpxx
