// ddpxx/data/cursor.hpp — where in the data a run stands; what a snapshot keeps of it.
#pragma once

#include <cstdint>

namespace ddpxx {

/// A place in the order of the data. It counts for all ranks together, so that any number of ranks, with batches of any
/// size, goes on from it without a skip or a repeat.
struct Cursor {
  std::int64_t epoch = 0;
  std::int64_t position = 0;  ///< Samples of this epoch that all ranks together have consumed.

  friend bool operator==(const Cursor&, const Cursor&) = default;
};

}  // namespace ddpxx
