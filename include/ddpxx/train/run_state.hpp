// ddpxx/train/run_state.hpp — a run's state as a snapshot sees it: ranges of values and moments, and what must match.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
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
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/state_slice.hpp>

namespace ddpxx {

/// A range of an arena, or of memory laid out like one: 1-D and contiguous.
struct StateRange {
  std::int64_t begin = 0;  ///< In elements from the arena's begin.
  at::Tensor values;

  std::int64_t end() const { return begin + values.numel(); }
};

/// One kind of state, such as the values or a moment: where it lies, and what it is called in a snapshot.
struct StatePart {
  std::string prefix;
  const Arena* arena;
  at::ScalarType type;             ///< Of its elements.
  std::vector<StateRange> ranges;  ///< What this rank holds of it, in the arena's order.
};

/// All that a step changes, but for random numbers and the place in the data.
struct RunState {
  std::vector<StatePart> parts;
  /// Tensors that every rank holds whole, by their names in a snapshot: the model's buffers, the loss scale.
  std::vector<std::pair<std::string, at::Tensor>> whole;
  std::string optimizer = {};  ///< What torch.optim calls it; empty if it has no such one.
};

/// The values of an arena's parameters, as the optimizer steps them.
inline StatePart values_part(const Arena& arena) {
  StatePart part{"model.", &arena, c10::typeMetaToScalarType(arena.options().dtype()), {}};
  for (const auto& segment : arena.segments())
    part.ranges.push_back({segment.begin + segment.size() / arena.pieces() * arena.piece(), segment.master});
  return part;
}

/// A moment of the optimizer that steps the slices of `arena`.
/// Errors  `config` for a moment that is not laid out like those slices: other elements would be saved and loaded.
inline StatePart moment_part(const Arena& arena, const Moment& moment) {
  const auto& slices = arena.slices();
  const auto refuse = [&](const std::string& found) {
    return Error{Errc::config, "the optimizer's state \"" + moment.name + "\" cannot be kept in snapshots: " + found +
                                   "; a Moment has a tensor for each slice that the optimizer was built from, in the "
                                   "order of the slices, 1-D, contiguous and with as many elements as the slice"};
  };
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

/// The state of a model and its optimizer.
/// Errors  those of `moment_part`.
inline std::vector<StatePart> state_parts(const Arena& trainable, const Arena& frozen,
                                          std::span<const Moment> moments) {
  std::vector<StatePart> parts{values_part(trainable), values_part(frozen)};
  for (const auto& moment : moments) parts.push_back(moment_part(trainable, moment));
  return parts;
}

namespace detail {

/// Calls `visit` with every range of a tensor that this rank holds, as a slice of its own memory, with its arena, and
/// with the place of its begin in the piece that holds it, from 0 to below 1.
template <class Visit>
void each_slice(const RunState& run, Visit&& visit) {
  for (const auto& [prefix, arena, type, ranges] : run.parts) {
    auto first = ranges.begin();
    for (const auto& entry : arena->entries()) {
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

/// Whether ranks that hold the same piece hold the same bits.
enum class Copies { equal, drifting };

/// What this rank writes: each element of the state is written by one rank. Ranks that hold the same piece share it
/// among them, tensor by tensor, unless their copies drift apart: then the first one's count. What every rank holds
/// whole is rank 0's.
inline std::vector<StateSlice> slices_to_write(const RunState& run, const Group& group, Copies holds) {
  std::vector<StateSlice> slices;
  detail::each_slice(run, [&](StateSlice slice, const Arena& arena, double place) {
    const auto copies = group.size() / arena.pieces(), copy = group.rank() / arena.pieces();
    const auto writer = holds == Copies::equal ? static_cast<int>(place * copies) : 0;
    // Of what has no elements all ranks hold all.
    if (writer == copy && (slice.values.numel() > 0 || group.rank() == 0)) slices.push_back(std::move(slice));
  });
  if (group.rank() == 0)
    for (const auto& [name, tensor] : run.whole) slices.push_back(whole_slice(name, tensor));
  return slices;
}

/// What this rank reads: everything that it holds.
inline std::vector<StateSlice> slices_to_read(const RunState& run) {
  std::vector<StateSlice> slices;
  detail::each_slice(run, [&](StateSlice slice, const Arena&, double) { slices.push_back(std::move(slice)); });
  return slices;
}

/// True for a snapshot that was made of a file with weights alone, and not by a run: it holds a model and no state of
/// an optimizer. Any optimizer begins anew with it, and so does a loss scale or a moving average.
inline bool lacks_optimizer(const Manifest& snapshot) {
  // A run's own snapshot has the state of its random numbers at least, also where its optimizer has none.
  return snapshot.run.optimizer.empty() &&
         std::all_of(snapshot.tensors.begin(), snapshot.tensors.end(),
                     [](const auto& tensor) { return tensor.first.starts_with("model."); });
}

/// Whether a run reads this tensor from the snapshot.
inline bool is_read(const std::string& name, const Manifest& snapshot) {
  return !lacks_optimizer(snapshot) || !(name.starts_with("optimizer.") || name.starts_with("scaler."));
}

/// Holds the tensors of a snapshot against those of a run, and the optimizers: Adam would take AdamW's tensors.
/// Errors  `storage` listing every tensor that one has and the other has not, or whose shape or type differs.
inline void check_state(const RunState& run, const Manifest& snapshot) {
  std::string differences;
  if (!run.optimizer.empty() && !snapshot.run.optimizer.empty() && run.optimizer != snapshot.run.optimizer)
    differences += "\n  the optimizer: " + snapshot.run.optimizer + " in the snapshot, " + run.optimizer + " now";
  std::set<std::string> names;
  const auto check = [&](const std::string& name, at::IntArrayRef sizes, at::ScalarType type) {
    names.insert(name);
    if (!is_read(name, snapshot)) return;
    const auto found = snapshot.tensors.find(name);
    if (found == snapshot.tensors.end())
      differences += "\n  " + name + ": missing in the snapshot";
    else if (at::IntArrayRef{found->second.shape} != sizes)
      differences += "\n  " + name + ": " + c10::str(at::IntArrayRef{found->second.shape}) + " in the snapshot, " +
                     c10::str(sizes) + " in the model";
    else if (found->second.dtype != type)
      differences += "\n  " + name + ": " + c10::toString(found->second.dtype) + " in the snapshot, " +
                     c10::toString(type) + " in the model";
  };
  for (const auto& part : run.parts)
    for (const auto& entry : part.arena->entries()) check(part.prefix + entry.name, entry.shape, part.type);
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
inline std::vector<std::string> compare_settings(const Settings& run, const Manifest& snapshot) {
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
    throw Error{Errc::storage,
                "the snapshot is of another run:" + conflicts + "\nset them back, or choose another save_dir"};
  return warnings;
}

}  // namespace ddpxx
