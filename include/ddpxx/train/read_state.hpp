// ddpxx/train/read_state.hpp — reads a snapshot into a run's state; each rank reads what it will hold.
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
  std::string text;                       ///< The damage that the first rank with damage found; empty if no rank did.
  std::optional<StoredRange> unreadable;  ///< The bytes that this rank could not read.
};

/// Reads what this rank will hold. Returns the damage that any rank found. At another world size, or on another kind of
/// device, the ranks seed their random numbers anew, from seed, rank and step.
/// Ranks   Collective.
/// Errors  `storage` or `memory` on every rank if any rank has that error.
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
  // The saved random state is used only if this world has the same ranks, and this device the same kind of generator.
  RandomStates saved_states;
  std::vector<at::Device> not_saved;
  for (const auto& [name, owner] : random_generators(group.rank(), device)) {
    const auto random = at::empty_like(random_state(owner));
    const auto saved = manifest.tensors.find(name);
    if (manifest.world_size == group.size() && saved != manifest.tensors.end() &&
        saved->second.dtype == random.scalar_type() && at::IntArrayRef{saved->second.shape} == random.sizes()) {
      slices.push_back(whole_slice(name, random));
      saved_states.emplace_back(owner, random);
    } else {
      not_saved.push_back(owner);
    }
  }

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
  set_random_states(saved_states);
  for (const auto& owner : not_saved)
    seed_random(owner, seed + static_cast<std::uint64_t>(group.rank()) +
                           (static_cast<std::uint64_t>(manifest.run.step) << 20U));
  return {};
}

}  // namespace ddpxx
