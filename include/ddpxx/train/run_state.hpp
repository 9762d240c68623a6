// ddpxx/train/run_state.hpp — the state of a run that snapshots hold, and the checks that a snapshot fits a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/state_slice.hpp>
#include <ddpxx/train/loaded_run.hpp>

namespace ddpxx {

/// A range of an arena, or of memory with the layout of an arena. The values are 1-D and contiguous.
struct StateRange {
  std::int64_t begin = 0;  ///< Offset in elements from the start of the arena.
  at::Tensor values;

  std::int64_t end() const { return begin + values.numel(); }
};

/// One kind of state, for example the parameters' values or a moment of the optimizer.
struct StatePart {
  std::string prefix;  ///< Stands before the parameter's name in a snapshot, such as `optimizer.exp_avg.`.
  const Arena* arena;
  at::ScalarType type;             ///< The type of the elements.
  std::vector<StateRange> ranges;  ///< The ranges that this rank holds, in the order of the arena.
  std::optional<std::vector<std::size_t>> parameters = {};  ///< Indices of the entries that have it; none: all have.

  bool has(const ArenaEntry& entry) const;
};

/// Everything that a step changes, except the random numbers and the position in the data.
struct RunState {
  std::vector<StatePart> parts;
  /// Tensors that every rank holds whole, by their names in a snapshot: the model's buffers, the loss scale,
  /// the average of the norms, the counts of evaluations.
  std::vector<std::pair<std::string, at::Tensor>> whole;
  std::string optimizer = {};  ///< The optimizer's name in snapshots; empty if it has none.
};

/// Returns the values of an arena's parameters, as the optimizer steps them.
StatePart values_part(const Arena& arena);

/// Returns a moment of the optimizer that steps the slices of `arena`.
/// Errors  `config` for a moment that does not have the layout of those slices.
StatePart moment_part(const Arena& arena, const Moment& moment);

/// Returns the state of a model and its optimizer.
/// Errors  those of `moment_part`.
std::vector<StatePart> state_parts(const Arena& trainable, const Arena& frozen, std::span<const Moment> moments);

/// The random generators of a rank whose model is on `device`, by the names that a snapshot gives to their states: that
/// of the device and, since a model may draw numbers on the host, that of the CPU.
std::vector<std::pair<std::string, at::Device>> random_generators(int rank, at::Device device);

/// Refuses tensors of types that a snapshot cannot hold.
/// Errors  `config`, naming the first such tensor.
void check_types(const RunState& run);

/// Whether all ranks that hold one piece hold equal bits, or their copies drift apart during training.
enum class Copies { equal, drifting };

/// Returns the slices that this rank writes. Each element of the state is written by exactly one rank. Ranks that hold
/// equal copies of a piece divide its tensors among themselves; of copies that drift, the first rank writes its own.
/// Rank 0 writes the tensors that every rank holds whole.
std::vector<StateSlice> slices_to_write(const RunState& run, const Group& group, Copies holds);

/// Returns the slices that this rank reads: all that it holds.
std::vector<StateSlice> slices_to_read(const RunState& run);

/// The bytes of the tensors that all ranks together write into a snapshot.
std::uint64_t bytes_of_snapshot(const RunState& run);

/// True if the snapshot holds a model and no optimizer state, as one made from a file of weights does. A run that loads
/// it starts with a new optimizer, loss scale and moving average.
bool lacks_optimizer(const Manifest& snapshot);

/// What the snapshot holds of this run's state.
HeldState held_state(const RunState& run, const Manifest& snapshot);

/// Logs which parts of the state begin anew at step `step`.
void log_missing_state(const HeldState& held, std::int64_t step, const Log& log);

/// True if a run reads this tensor from the snapshot. A run may begin to scale its loss, to average its parameters, to
/// leave out steps by training.spike_factor, to lower its rate by plateau.metric, to stop by early_stopping.metric, or
/// to use the momentum of SGD, where the run that saved the snapshot did not.
bool is_read(const std::string& name, const Manifest& snapshot);

/// Compares the tensors and the optimizer of a snapshot with those of a run. The optimizer's name matters since AdamW,
/// Adam and LAMB have equal tensors. The loss scale, the moving average, the average of the norms, the counts of
/// evaluations and the moments are compared only where both the run and the snapshot have them.
/// Errors  `storage`, listing every tensor that is missing on one side or differs in shape or type.
void check_state(const RunState& run, const Manifest& snapshot);

/// Compares a run's settings with those of the snapshot that it resumes from. Returns a warning for each setting that
/// differs and may.
/// Errors  `storage`, listing the settings that differ and must not.
std::vector<std::string> compare_settings(const Settings& run, const Manifest& snapshot);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/run_state_inl.hpp>
#endif
