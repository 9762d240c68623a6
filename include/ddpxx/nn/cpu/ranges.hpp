// ddpxx/nn/cpu/ranges.hpp — cuts rows and heads into ranges, and runs a function on each of them in LibTorch's threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>

#include <ddpxx/nn/cpu/lanes.hpp>

namespace ddpxx::detail {

/// Calls `run(i)` for each i in [0, count), in LibTorch's threads if there are several. at::parallel_for would use one
/// thread here, because it needs a program that is compiled with OpenMP; a TensorIterator's loop over `count` bytes is
/// compiled in LibTorch.
template <class Run>
void run_tasks(std::int64_t count, const Run& run) {
  if (count == 1 || at::get_num_threads() == 1 || at::in_parallel_region()) {
    for (std::int64_t i = 0; i < count; ++i) run(i);
    return;
  }
  const auto bytes = at::empty({count}, at::kByte);
  const auto* const begin = static_cast<const char*>(bytes.const_data_ptr());
  auto tasks = at::TensorIterator::borrowing_nullary_op(bytes);
  // The loop over rows of bytes is written out: g++ warns of the one that LibTorch puts around a loop over one row.
  tasks.for_each(
      [&](char** data, const std::int64_t* strides, std::int64_t size, std::int64_t rows) {
        for (std::int64_t row = 0; row < rows; ++row)
          for (std::int64_t i = 0; i < size; ++i) run(data[0] + row * strides[1] - begin + i);
      },
      /*grain_size=*/1);
}

/// Ranges of items: one for each thread, of at least `smallest` items.
struct Ranges {
  Ranges(std::int64_t number_of_items, std::int64_t smallest)
      : items{number_of_items}, count{std::clamp<std::int64_t>(items / smallest, 1, at::get_num_threads())} {}

  std::int64_t items;
  std::int64_t count;

  /// Calls `run(lanes, first, last, i)` for the i-th range, with lanes for rows of `width` (in_lanes_of).
  template <class Run>
  void for_each(std::int64_t width, const Run& run) const {
    run_tasks(count, [&](std::int64_t i) {
      in_lanes_of(
          width, [&](auto lanes)
                     __attribute__((always_inline)) { run(lanes, items * i / count, items * (i + 1) / count, i); });
    });
  }
};

}  // namespace ddpxx::detail
