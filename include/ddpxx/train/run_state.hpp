// ddpxx/train/run_state.hpp — a run's state in and out of a snapshot: values, optimizer moments, random numbers.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/random_state.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/snapshot/snapshot.hpp>

namespace ddpxx {

using NamedTensors = std::map<std::string, at::Tensor>;

/// One kind of state, such as the values or a moment: where it lies, and what it is called in a snapshot.
struct StatePart {
  std::string prefix;
  const Arena* arena;
  std::vector<at::Tensor> pieces;  ///< One a segment: this rank's.
};

/// All that a step changes, but for random numbers and the place in the data.
struct RunState {
  std::vector<StatePart> parts;
  /// Tensors that every rank holds whole, by their names in a snapshot: the model's buffers, the loss scale.
  std::vector<std::pair<std::string, at::Tensor>> whole;
};

/// The state of a model and its optimizer, as pieces.
inline std::vector<StatePart> state_parts(const Arena& trainable, const Arena& frozen,
                                          std::span<const Moment> moments) {
  std::vector<StatePart> parts;
  for (const auto* arena : {&trainable, &frozen}) {
    parts.push_back({"model.", arena, {}});
    for (const auto& segment : arena->segments()) parts.back().pieces.push_back(segment.master);
  }
  for (const auto& moment : moments) {
    parts.push_back({"optimizer." + moment.name + ".", &trainable, {}});
    std::size_t i = 0;
    for (const auto& segment : trainable.segments()) {
      // The slices of a segment follow each other in one memory: their whole is a view of it.
      const auto first = i;
      std::int64_t size = 0;
      while (i < moment.slices.size() && size < segment.master.numel()) size += moment.slices[i++].numel();
      parts.back().pieces.push_back(moment.slices[first].as_strided({size}, {1}));
    }
  }
  return parts;
}

/// Copies the state whole to the host of rank 0; other ranks get nothing. One segment at a time is whole anywhere else.
/// Ranks   Collective.
template <class Strategy>
NamedTensors gather_state(const Strategy& strategy, const RunState& run, const Group& group) {
  const c10::NoGradGuard no_grad;
  NamedTensors state;
  for (const auto& [prefix, arena, pieces] : run.parts)
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const auto& segment = arena->segments()[i];
      const auto whole = at::empty({segment.size()}, pieces[i].options());
      if (arena->pieces() > 1)
        strategy.assemble(whole, pieces[i]);
      else
        whole.copy_(pieces[i]);
      if (group.rank() != 0) continue;
      for (auto e = segment.first; e < segment.last; ++e)
        state.emplace(prefix + (*arena)[e].name,
                      Arena::part(whole, (*arena)[e], segment.begin).to(at::kCPU, whole.scalar_type(), false, true));
    }
  if (group.rank() == 0)
    for (const auto& [name, tensor] : run.whole) state.emplace(name, tensor.detach().to(at::kCPU).clone());
  return state;
}

/// Gives every rank its pieces of the state that rank 0 has.
/// Ranks   Collective.
inline void scatter_state(const RunState& run, const NamedTensors& state, const Group& group) {
  const c10::NoGradGuard no_grad;
  for (const auto& [prefix, arena, pieces] : run.parts)
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const auto& segment = arena->segments()[i];
      const auto whole = at::zeros({segment.size()}, pieces[i].options().device(group.device()));
      if (group.rank() == 0)
        for (auto e = segment.first; e < segment.last; ++e)
          Arena::part(whole, (*arena)[e], segment.begin).copy_(state.at(prefix + (*arena)[e].name));
      broadcast(whole, group);
      at::Tensor{pieces[i]}.copy_(arena->piece_of(whole));
    }
  for (const auto& part : run.parts) part.arena->publish_masters();
  for (const auto& [name, tensor] : run.whole) {
    const auto sent = group.rank() == 0 ? state.at(name).to(group.device()) : at::empty_like(tensor, group.device());
    broadcast(sent, group);
    at::Tensor{tensor}.copy_(sent);
  }
}

/// The generator states of all ranks, one row each, on every rank.
/// Ranks   Collective.
inline at::Tensor gather_random_states(at::Device device, const Group& group) {
  const auto mine = random_state(device).to(group.device());
  auto all = at::empty({group.size() * mine.numel()}, mine.options());
  all_gather(all, mine, group);
  return all.view({group.size(), -1}).to(at::kCPU);
}

/// Holds the tensors of a snapshot against those of a run.
/// Errors  `storage` listing every tensor that one has and the other has not, or whose shape or type differs.
inline void check_state(const RunState& run, const Snapshot& snapshot) {
  std::string differences;
  std::set<std::string> names;
  const auto check = [&](const std::string& name, at::IntArrayRef sizes, at::ScalarType type) {
    names.insert(name);
    const auto found = snapshot.tensors.find(name);
    if (found == snapshot.tensors.end())
      differences += "\n  " + name + ": missing in the snapshot";
    else if (found->second.sizes() != sizes)
      differences += "\n  " + name + ": " + c10::str(found->second.sizes()) + " in the snapshot, " + c10::str(sizes) +
                     " in the model";
    else if (found->second.scalar_type() != type)
      differences += "\n  " + name + ": " + c10::toString(found->second.scalar_type()) + " in the snapshot, " +
                     c10::toString(type) + " in the model";
  };
  for (const auto& [prefix, arena, pieces] : run.parts)
    for (const auto& entry : arena->entries())
      check(prefix + entry.name, entry.parameter.sizes(), pieces[entry.segment].scalar_type());
  for (const auto& [name, tensor] : run.whole) check(name, tensor.sizes(), tensor.scalar_type());
  for (const auto& [name, tensor] : snapshot.tensors)
    if (!name.starts_with("random.") && !names.contains(name)) differences += "\n  " + name + ": only in the snapshot";
  if (!differences.empty())
    throw Error{Errc::storage, "the snapshot is of another model or optimizer:" + differences +
                                   "\nchoose the configuration it was saved with, or another save_dir"};
}

/// Compares a run's settings with those of the snapshot it resumes from; returns a line for each that differs and only
/// deserves a warning.
/// Errors  `storage` listing the settings that must match and do not.
inline std::vector<std::string> compare_settings(const Settings& run, const Snapshot& snapshot) {
  std::map<std::string, std::string> saved;
  for (const auto& setting : snapshot.settings) saved.emplace(setting.path, setting.value);
  std::vector<std::string> warnings;
  std::string conflicts;
  for (const auto& [path, value, resume] : run) {
    const auto found = saved.find(path);
    if (found == saved.end() || found->second == value || resume == Resume::free) continue;
    const auto line = path + ": " + found->second + " in the snapshot, " + value + " now";
    if (resume == Resume::warn)
      warnings.push_back("resumed with a changed setting: " + line);
    else
      conflicts += "\n  " + line;
  }
  if (!conflicts.empty())
    throw Error{Errc::storage,
                "the snapshot is of another run:" + conflicts + "\nset them back, or choose another save_dir"};
  return warnings;
}

}  // namespace ddpxx
