// ddpxx/snapshot/state_slice.hpp — a range of a tensor's elements, as one rank holds it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace ddpxx {

/// What a rank writes into a snapshot, or reads out of it. Elements count in row-major order.
struct StateSlice {
  std::string name;                 ///< Of the tensor in the snapshot, such as `model.head.weight`.
  std::vector<std::int64_t> shape;  ///< Of the whole tensor.
  std::int64_t begin = 0;           ///< The first of its elements that is here.
  at::Tensor values;                ///< 1-D and contiguous: these elements, on any device.

  std::int64_t end() const { return begin + values.numel(); }
};

/// A tensor that a rank holds whole.
inline StateSlice whole_slice(std::string name, const at::Tensor& tensor) {
  return {std::move(name), tensor.sizes().vec(), 0, tensor.detach().contiguous().view({-1})};
}

}  // namespace ddpxx
