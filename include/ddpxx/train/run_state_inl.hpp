// ddpxx/train/run_state_inl.hpp — definitions of run_state.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/snapshot/dtype_name.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/state_slice.hpp>
#include <ddpxx/train/run_state.hpp>

namespace ddpxx {

DDPXX_INLINE bool StatePart::has(const ArenaEntry& entry) const {
  return !parameters || std::ranges::binary_search(*parameters, entry.index);
}

DDPXX_INLINE StatePart values_part(const Arena& arena) {
  StatePart part{"model.", &arena, c10::typeMetaToScalarType(arena.options().dtype()), {}};
  for (const auto& segment : arena.segments())
    part.ranges.push_back({segment.begin + segment.size() / arena.pieces() * arena.piece(), segment.master});
  return part;
}

namespace detail {

/// The ranges of a moment that an optimizer keeps for some parameters only.
inline std::vector<StateRange> ranges_of(const Arena& arena, const Moment& moment) {
  const auto fits = [&](const at::Tensor& tensor, std::int64_t size) {
    return tensor.defined() && tensor.dim() == 1 && tensor.numel() == size && tensor.is_contiguous() &&
           tensor.scalar_type() == moment.slices.front().scalar_type();
  };
  std::vector<StateRange> ranges;
  for (const auto& slice : arena.slices())
    for (const auto& entry : slice.entries()) {
      if (!std::ranges::binary_search(*moment.parameters, entry.parameter->index)) continue;
      if (ranges.size() < moment.slices.size() && fits(moment.slices[ranges.size()], entry.size))
        ranges.push_back({slice.begin + entry.begin, moment.slices[ranges.size()]});
      else
        throw Error{Errc::config, "the optimizer's state \"" + moment.name + "\" has no tensor of " +
                                      std::to_string(entry.size) + " elements for parameter \"" +
                                      entry.parameter->name +
                                      "\": a Moment of some parameters has one for each SliceEntry of them, 1-D, "
                                      "contiguous and all of one type"};
    }
  if (ranges.size() != moment.slices.size())
    throw Error{Errc::config, "the optimizer's state \"" + moment.name + "\" has " +
                                  std::to_string(moment.slices.size()) + " tensors for " +
                                  std::to_string(ranges.size()) + " parts of its parameters"};
  return ranges;
}

}  // namespace detail

DDPXX_INLINE StatePart moment_part(const Arena& arena, const Moment& moment) {
  const auto& slices = arena.slices();
  const auto refuse = [&](const std::string& found) {
    return Error{Errc::config, "the optimizer's state \"" + moment.name + "\" cannot be kept in snapshots: " + found +
                                   "; a Moment has a tensor for each slice that the optimizer was built from, in the "
                                   "order of the slices, 1-D, contiguous and with as many elements as the slice"};
  };
  if (moment.parameters) {
    StatePart part{"optimizer." + moment.name + ".", &arena, c10::typeMetaToScalarType(arena.options().dtype()),
                   detail::ranges_of(arena, moment), moment.parameters};
    if (!part.ranges.empty()) part.type = part.ranges.front().values.scalar_type();
    return part;
  }
  if (moment.slices.size() != slices.size())
    throw refuse(std::to_string(moment.slices.size()) + " tensors for " + std::to_string(slices.size()) + " slices");
  StatePart part{"optimizer." + moment.name + ".", &arena, c10::typeMetaToScalarType(arena.options().dtype()), {}};
  if (!slices.empty() && moment.slices.front().defined()) part.type = moment.slices.front().scalar_type();
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const auto& tensor = moment.slices[i];
    const auto size = slices[i].end - slices[i].begin;
    const auto name = "tensor " + std::to_string(i);
    if (!tensor.defined()) throw refuse(name + " is undefined");
    if (tensor.dim() != 1 || tensor.numel() != size || !tensor.is_contiguous() || tensor.scalar_type() != part.type)
      throw refuse(name + " is " + c10::toString(tensor.scalar_type()) + " " + c10::str(tensor.sizes()) +
                   (tensor.is_contiguous() ? "" : ", not contiguous") + ", where " + c10::toString(part.type) + " [" +
                   std::to_string(size) + "] is needed");
    part.ranges.push_back({slices[i].begin, tensor});
  }
  return part;
}

DDPXX_INLINE std::vector<StatePart> state_parts(const Arena& trainable, const Arena& frozen,
                                                std::span<const Moment> moments) {
  std::vector<StatePart> parts{values_part(trainable), values_part(frozen)};
  for (const auto& moment : moments) parts.push_back(moment_part(trainable, moment));
  return parts;
}

namespace detail {

/// Calls `visit(slice, arena, place)` for every range of a tensor that this rank holds. The slice is a view of the
/// rank's memory. `place` says where the range begins in this rank's piece of the segment, from 0 to below 1.
template <class Visit>
void each_slice(const RunState& run, Visit&& visit) {
  for (const auto& part : run.parts) {
    const auto& [prefix, arena, type, ranges, parameters] = part;
    auto first = ranges.begin();
    for (const auto& entry : arena->entries()) {
      if (!part.has(entry)) continue;
      if (entry.numel == 0) {
        visit(StateSlice{prefix + entry.name, entry.shape, 0, at::empty({0}, arena->options().dtype(type))}, *arena,
              0.0);
        continue;
      }
      const auto& segment = arena->segments()[entry.segment];
      const auto size = segment.size() / arena->pieces();
      const auto piece = segment.begin + size * arena->piece();
      while (first != ranges.end() && first->end() <= entry.offset) ++first;
      for (auto range = first; range != ranges.end() && range->begin < entry.offset + entry.numel; ++range) {
        const auto begin = std::max(range->begin, entry.offset);
        const auto end = std::min(range->end(), entry.offset + entry.numel);
        visit(StateSlice{prefix + entry.name, entry.shape, begin - entry.offset,
                         range->values.narrow(0, begin - range->begin, end - begin)},
              *arena, static_cast<double>(begin - piece) / static_cast<double>(size));
      }
    }
  }
}

}  // namespace detail

DDPXX_INLINE std::vector<StateSlice> slices_to_write(const RunState& run, const Group& group, Copies holds) {
  std::vector<StateSlice> slices;
  detail::each_slice(run, [&](StateSlice slice, const Arena& arena, double place) {
    const auto copies = group.size() / arena.pieces(), copy = group.rank() / arena.pieces();
    const auto writer = holds == Copies::equal ? static_cast<int>(place * copies) : 0;
    // Every rank holds an empty tensor, so rank 0 writes it.
    if (writer == copy && (slice.values.numel() > 0 || group.rank() == 0)) slices.push_back(std::move(slice));
  });
  if (group.rank() == 0)
    for (const auto& [name, tensor] : run.whole) slices.push_back(whole_slice(name, tensor));
  return slices;
}

DDPXX_INLINE std::vector<StateSlice> slices_to_read(const RunState& run) {
  std::vector<StateSlice> slices;
  detail::each_slice(run, [&](StateSlice slice, const Arena&, double) { slices.push_back(std::move(slice)); });
  return slices;
}

DDPXX_INLINE bool lacks_optimizer(const Manifest& snapshot) {
  // A snapshot that a run wrote has at least the state of the random numbers.
  return snapshot.run.optimizer.empty() &&
         std::all_of(snapshot.tensors.begin(), snapshot.tensors.end(),
                     [](const auto& tensor) { return tensor.first.starts_with("model."); });
}

namespace detail {

inline constexpr std::string_view kScaler = "scaler.", kOptimizer = "optimizer.", kAverage = "optimizer.ema.",
                                  kSpikes = "spikes.", kPlateau = "plateau.", kEarlyStopping = "early_stopping.";
/// A run and the snapshot that it loads may differ in whether they have tensors with these prefixes.
inline constexpr std::array<std::string_view, 5> kOptional{kScaler, kAverage, kSpikes, kPlateau, kEarlyStopping};

/// Whether the snapshot has a tensor whose name begins with `prefix`.
inline bool has_any(const Manifest& snapshot, std::string_view prefix) {
  const auto found = snapshot.tensors.lower_bound(std::string{prefix});
  return found != snapshot.tensors.end() && found->first.starts_with(prefix);
}

/// `model.fc.weight` for the moment `optimizer.exp_avg.fc.weight`; empty for other tensors.
inline std::string model_name_of_moment(std::string_view name) {
  const auto dot = name.starts_with(kOptimizer) ? name.find('.', kOptimizer.size()) : name.npos;
  return dot == name.npos ? "" : "model" + std::string{name.substr(dot)};
}

inline bool is_of_optimizer(std::string_view name) {
  return name.starts_with(kOptimizer) && !name.starts_with(kAverage);
}

/// Whether the snapshot has moments of the optimizer. SGD without momentum has none.
inline bool has_moments(const Manifest& snapshot) {
  return std::ranges::any_of(snapshot.tensors, [](const auto& tensor) { return is_of_optimizer(tensor.first); });
}

inline bool has_moments(const RunState& run) {
  return std::ranges::any_of(run.parts, [](const StatePart& part) { return is_of_optimizer(part.prefix); });
}

/// Whether the run has a tensor whose name begins with `prefix`.
inline bool has_any(const RunState& run, std::string_view prefix) {
  return std::ranges::any_of(run.parts, [&](const StatePart& part) { return part.prefix.starts_with(prefix); }) ||
         std::ranges::any_of(run.whole, [&](const auto& tensor) { return tensor.first.starts_with(prefix); });
}

}  // namespace detail

DDPXX_INLINE std::uint64_t bytes_of_snapshot(const RunState& run) {
  std::uint64_t bytes = 0;
  for (const auto& part : run.parts)
    for (const auto& entry : part.arena->entries())
      if (part.has(entry)) bytes += static_cast<std::uint64_t>(entry.numel) * c10::elementSize(part.type);
  for (const auto& [name, tensor] : run.whole) bytes += tensor.nbytes();
  return bytes;
}

DDPXX_INLINE HeldState held_state(const RunState& run, const Manifest& snapshot) {
  const auto holds = [&](std::string_view prefix) {
    return detail::has_any(snapshot, prefix) || !detail::has_any(run, prefix);
  };
  return {.optimizer = !lacks_optimizer(snapshot) && (detail::has_moments(snapshot) || !detail::has_moments(run)),
          .average = holds(detail::kAverage),
          .scale = holds(detail::kScaler),
          .spikes = holds(detail::kSpikes),
          .plateau = holds(detail::kPlateau),
          .early_stopping = holds(detail::kEarlyStopping)};
}

DDPXX_INLINE void log_missing_state(const HeldState& held, std::int64_t step, const Log& log) {
  const auto at_step = " at step " + std::to_string(step);
  if (!held.optimizer) {
    log.info("the snapshot holds no state of the optimizer, which begins anew" + at_step);
    return;
  }
  if (!held.average) log.info("the snapshot holds no moving average of the parameters: it begins anew" + at_step);
  if (!held.plateau) log.info("the snapshot holds no evaluations for plateau.metric: they are counted anew" + at_step);
  if (!held.early_stopping)
    log.info("the snapshot holds no evaluations for early_stopping.metric: they are counted anew" + at_step);
  if (!held.scale) log.info("the snapshot holds no loss scale: it begins with initial_scale" + at_step);
}

DDPXX_INLINE bool is_read(const std::string& name, const Manifest& snapshot) {
  for (const auto prefix : detail::kOptional)
    if (name.starts_with(prefix)) return detail::has_any(snapshot, prefix);
  return !name.starts_with(detail::kOptimizer) || detail::has_moments(snapshot);
}

DDPXX_INLINE std::vector<std::pair<std::string, at::Device>> random_generators(int rank, at::Device device) {
  const auto name = "random." + std::to_string(rank);
  std::vector<std::pair<std::string, at::Device>> generators{{name, device}};
  if (!device.is_cpu()) generators.emplace_back(name + ".cpu", at::kCPU);
  return generators;
}

DDPXX_INLINE void check_types(const RunState& run) {
  const auto check = [](const std::string& name, at::ScalarType type) {
    if (std::ranges::find(detail::kSafetensorsTypes, type, &detail::SafetensorsType::dtype) ==
        detail::kSafetensorsTypes.end())
      throw Error{Errc::config, name + " has the type " + at::toString(type) +
                                    ", which a snapshot cannot hold: use another type (for complex numbers, "
                                    "at::view_as_real), or train without save_dir"};
  };
  for (const auto& part : run.parts)
    for (const auto& entry : part.arena->entries())
      if (part.has(entry)) check(part.prefix + entry.name, part.type);
  for (const auto& [name, tensor] : run.whole) check(name, tensor.scalar_type());
}

DDPXX_INLINE void check_state(const RunState& run, const Manifest& snapshot) {
  std::string differences;
  if (!snapshot.run.optimizer.empty() && run.optimizer != snapshot.run.optimizer)
    differences += "\n  the optimizer: " + snapshot.run.optimizer + " in the snapshot, " +
                   (run.optimizer.empty() ? "one without a name" : run.optimizer) + " now";
  bool trains_others = false;  // a parameter has moments in the run or in the snapshot, and is frozen in the other
  std::set<std::string> names;
  const auto check = [&](const std::string& name, at::IntArrayRef sizes, at::ScalarType type) {
    names.insert(name);
    if (!is_read(name, snapshot)) return;
    const auto found = snapshot.tensors.find(name);
    if (found == snapshot.tensors.end()) {
      differences += "\n  " + name + ": missing in the snapshot";
      trains_others |= snapshot.tensors.contains(detail::model_name_of_moment(name));
    } else if (at::IntArrayRef{found->second.shape} != sizes) {
      differences += "\n  " + name + ": " + c10::str(at::IntArrayRef{found->second.shape}) + " in the snapshot, " +
                     c10::str(sizes) + " in the model";
    } else if (found->second.dtype != type) {
      differences += "\n  " + name + ": " + c10::toString(found->second.dtype) + " in the snapshot, " +
                     c10::toString(type) + " in the model";
    }
  };
  for (const auto& part : run.parts)
    for (const auto& entry : part.arena->entries())
      if (part.has(entry)) check(part.prefix + entry.name, entry.shape, part.type);
  for (const auto& [name, tensor] : run.whole) check(name, tensor.sizes(), tensor.scalar_type());
  const bool drops_moments = !snapshot.run.optimizer.empty() && !detail::has_moments(run);
  for (const auto& [name, tensor] : snapshot.tensors) {
    const bool is_optional =
        name.starts_with("random.") || (drops_moments && detail::is_of_optimizer(name)) ||
        std::ranges::any_of(detail::kOptional, [&](std::string_view prefix) { return name.starts_with(prefix); });
    if (is_optional || names.contains(name)) continue;
    differences += "\n  " + name + ": only in the snapshot";
    trains_others |= names.contains(detail::model_name_of_moment(name));
  }
  trains_others &= run.optimizer == snapshot.run.optimizer;  // another optimizer has other moments
  if (!differences.empty())
    throw Error{Errc::storage,
                "the snapshot is of another model or optimizer:" + differences +
                    "\nchoose the configuration it was saved with, or another snapshot or save_dir" +
                    (trains_others ? "; its run trained other parameters of the model: to train these ones, begin a "
                                     "new run in another save_dir, with a model into which load_model() has read the "
                                     "snapshot"
                                   : "")};
}

DDPXX_INLINE std::vector<std::string> compare_settings(const Settings& run, const Manifest& snapshot) {
  std::map<std::string, std::string> saved;
  for (const auto& setting : snapshot.run.settings) saved.emplace(setting.path, setting.value);
  std::vector<std::string> warnings;
  std::string conflicts;
  for (const auto& [path, value, resume, origin] : run) {
    const auto found = saved.find(path);
    if (found == saved.end() || found->second == value || resume == Resume::free) continue;
    if (resume == Resume::warn)
      warnings.push_back("resumed with a changed setting: " + path + ' ' + shortened(found->second) + " -> " +
                         shortened(value));
    else
      conflicts += "\n  " + path + ": " + shortened(found->second) + " in the snapshot, " + shortened(value) + " now";
  }
  if (!conflicts.empty())
    throw Error{Errc::storage, "the snapshot is of another run:" + conflicts +
                                   "\nset them back, or choose another snapshot or save_dir"};
  return warnings;
}

}  // namespace ddpxx
