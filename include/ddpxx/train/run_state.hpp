// ddpxx/train/run_state.hpp — a run's state in and out of a snapshot: values, optimizer moments, random numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/snapshot/snapshot.hpp>

namespace ddpxx {

using NamedTensors = std::map<std::string, at::Tensor>;

/// Every tensor of a model and its optimizer by the name it has in a snapshot; views, so that they can be copied into.
inline NamedTensors state_of(const FlatModel& model, std::span<const Slice> slices, std::span<const Moment> moments) {
  NamedTensors state;
  for (const auto* arena : {&model.trainable(), &model.frozen()})
    for (const auto& entry : arena->entries())
      state.emplace("model." + entry.name, Arena::part(arena->values(), entry));
  for (const auto& buffer : model.module().named_buffers()) state.emplace("model." + buffer.key(), buffer.value());
  for (const auto& moment : moments)
    for (std::size_t i = 0; i < slices.size(); ++i)
      for (const auto& entry : model.trainable().entries())
        if (entry.offset >= slices[i].begin && entry.offset < slices[i].end)
          state.emplace("optimizer." + moment.name + "." + entry.name,
                        Arena::part(moment.slices[i], entry, slices[i].begin));
  return state;
}

/// The state of the generator that dropout on `device` draws from.
inline at::Tensor random_state(at::Device device) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock{generator.mutex()};
  return generator.get_state();
}
inline void set_random_state(at::Device device, const at::Tensor& state) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock{generator.mutex()};
  generator.set_state(state);
}

inline void seed_random(at::Device device, std::uint64_t seed) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock{generator.mutex()};
  generator.set_current_seed(seed);
}

/// The generator states of all ranks, one row each, on every rank.
/// Ranks   Collective.
inline at::Tensor gather_random_states(at::Device device, const Group& group) {
  const auto mine = random_state(device).to(group.device());
  auto all = at::empty({group.size() * mine.numel()}, mine.options());
  all_gather(all, mine, group);
  return all.view({group.size(), -1}).to(at::kCPU);
}

/// Copies the tensors of a snapshot into a run's.
/// Errors  `storage` listing every tensor that one has and the other has not, or whose shape or type differs; nothing
/// is
///         copied then.
inline void restore_tensors(const NamedTensors& run, const Snapshot& snapshot) {
  std::string differences;
  for (const auto& [name, tensor] : run) {
    const auto found = snapshot.tensors.find(name);
    if (found == snapshot.tensors.end())
      differences += "\n  " + name + ": missing in the snapshot";
    else if (found->second.sizes() != tensor.sizes())
      differences += "\n  " + name + ": " + c10::str(found->second.sizes()) + " in the snapshot, " +
                     c10::str(tensor.sizes()) + " in the model";
    else if (found->second.scalar_type() != tensor.scalar_type())
      differences += "\n  " + name + ": " + c10::toString(found->second.scalar_type()) + " in the snapshot, " +
                     c10::toString(tensor.scalar_type()) + " in the model";
  }
  for (const auto& [name, tensor] : snapshot.tensors)
    if (!name.starts_with("random.") && !run.contains(name)) differences += "\n  " + name + ": only in the snapshot";
  if (!differences.empty())
    throw Error{Errc::storage, "the snapshot is of another model or optimizer:" + differences +
                                   "\nchoose the configuration it was saved with, or another save_dir"};
  const c10::NoGradGuard no_grad;
  for (const auto& [name, tensor] : run) at::Tensor{tensor}.copy_(snapshot.tensors.at(name));
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
