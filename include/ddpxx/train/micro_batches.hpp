// ddpxx/train/micro_batches.hpp — how many batches of how many samples a rank computes for one optimizer step.
#pragma once

#include <cstdint>
#include <string>

#include <ddpxx/core/error.hpp>
#include <ddpxx/train/training_settings.hpp>

namespace ddpxx {

struct MicroBatches {
  std::int64_t size = 8;   ///< Samples in each batch.
  std::int64_t count = 1;  ///< Batches of a step.
};

/// The batches of one of `ranks` ranks whose steps have `global_batch` samples together: as few as there can be of one
/// size that is not above `largest`.
/// Errors  `config` where the ranks cannot have equal parts.
inline MicroBatches divide_global_batch(std::int64_t global_batch, std::int64_t largest, std::int64_t ranks) {
  if (global_batch % ranks != 0)
    throw Error{Errc::config, "training.global_batch_size=" + std::to_string(global_batch) + ": " +
                                  std::to_string(ranks) +
                                  " ranks cannot have equal parts of it: choose a number of ranks that divides it, or "
                                  "another size, such as " +
                                  std::to_string((global_batch / ranks + 1) * ranks)};
  const auto share = global_batch / ranks;
  auto count = (share + largest - 1) / largest;
  while (share % count != 0) ++count;
  return {.size = share / count, .count = count};
}

/// The batches of a step on each of `ranks` ranks, by the settings of a trainer.
/// Errors  those of divide_global_batch().
inline MicroBatches micro_batches(std::int64_t batch_size, const TrainingConfig& training, std::int64_t ranks) {
  if (training.global_batch_size > 0) return divide_global_batch(training.global_batch_size, batch_size, ranks);
  return {.size = batch_size, .count = training.accumulation_steps};
}

}  // namespace ddpxx
