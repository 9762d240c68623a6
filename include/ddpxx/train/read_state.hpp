// ddpxx/train/read_state.hpp — a snapshot into a run's state: each rank reads what it will hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/Device.h>
#include <c10/core/GradMode.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/on_every_rank.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/failpoint.hpp>
#include <ddpxx/layers/random_state.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/shard_reader.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/snapshot/state_slice.hpp>
#include <ddpxx/storage/storage.hpp>
#include <ddpxx/train/run_state.hpp>

namespace ddpxx {

/// Why a state could not be read.
struct StateDamage {
  std::string text;                       ///< Of the first rank that met damage; empty where no rank did.
  std::optional<StoredRange> unreadable;  ///< The bytes that the place could not give to this rank.
};

/// Reads what this rank will hold; returns the damage that any rank has met. At another world size, and on another kind
/// of device, the ranks draw new random numbers, from seed, rank and step.
/// Ranks   Collective.
/// Errors  `storage` on every rank, for what any of them cannot read; `memory` likewise.
inline StateDamage read_state(Storage& storage, const Manifest& manifest, const RunState& state, const Group& group,
                              at::Device device, std::uint64_t seed) {
  failpoint("checkpoint.before_read");
  auto slices = slices_to_read(state);
  std::erase_if(slices, [&](const StateSlice& slice) { return !is_read(slice.name, manifest); });
  std::vector<at::Tensor> whole;
  for (const auto& [name, tensor] : state.whole) {
    whole.push_back(is_read(name, manifest) ? at::empty_like(tensor, at::kCPU, at::MemoryFormat::Contiguous)
                                            : at::Tensor{});
    if (whole.back().defined()) slices.push_back(whole_slice(name, whole.back()));
  }
  // Another world has other ranks, and another device another kind of generator.
  const auto random = at::empty_like(random_state(device));
  const auto random_name = "random." + std::to_string(group.rank());
  const auto saved = manifest.tensors.find(random_name);
  const bool same_random = manifest.world_size == group.size() && saved != manifest.tensors.end() &&
                           saved->second.dtype == random.scalar_type() &&
                           at::IntArrayRef{saved->second.shape} == random.sizes();
  if (same_random) slices.push_back(whole_slice(random_name, random));

  const auto damage = on_every_rank(group, Errc::storage, [&] {
    ShardReader reader{storage, Snapshots::folder_of(manifest.run.step), manifest};
    auto text = reader.read(slices).value_or("");
    return StateDamage{std::move(text), reader.unreadable()};
  });
  for (const auto& each : all_gather_text(damage.text, group))
    if (!each.empty()) return {each, damage.unreadable};

  const c10::NoGradGuard no_grad;
  for (const auto& part : state.parts) part.arena->publish_masters();
  for (std::size_t i = 0; i < whole.size(); ++i)
    if (whole[i].defined()) at::Tensor{state.whole[i].second}.copy_(whole[i]);
  if (same_random)
    set_random_state(device, random);
  else
    seed_random(device, seed + static_cast<std::uint64_t>(group.rank()) +
                            (static_cast<std::uint64_t>(manifest.run.step) << 20U));
  return {};
}

}  // namespace ddpxx
