// ddpxx/data/cursor.hpp — the position of a run in its data, which snapshots keep.
#pragma once

#include <cstdint>

namespace ddpxx {

/// A position in the order of the data, counted over all ranks together: any number of ranks, with batches of any size,
/// can continue from it without skipping or repeating a sample.
struct Cursor {
  std::int64_t epoch = 0;
  std::int64_t position = 0;  ///< Samples of this epoch that all ranks together have consumed.

  friend bool operator==(const Cursor&, const Cursor&) = default;
};

}  // namespace ddpxx
