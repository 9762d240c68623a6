// ddpxx/snapshot/state_slice.hpp — a range of a tensor's elements, as one rank holds it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace ddpxx {

/// A range of a tensor's elements, in row-major order, that a rank writes to a snapshot or reads from it.
struct StateSlice {
  std::string name;                 ///< The tensor's name in the snapshot, such as `model.head.weight`.
  std::vector<std::int64_t> shape;  ///< The shape of the whole tensor.
  std::int64_t begin = 0;           ///< Index of the first element of the range.
  at::Tensor values;                ///< The elements: 1-D and contiguous, on any device.

  std::int64_t end() const { return begin + values.numel(); }
};

/// Returns a slice with all elements of `tensor`. Its values are the tensor's own memory if the tensor is contiguous
/// and no view that conjugates or negates, and a copy otherwise, which can be written to a snapshot but not read into.
inline StateSlice whole_slice(std::string name, const at::Tensor& tensor) {
  return {std::move(name), tensor.sizes().vec(), 0,
          tensor.detach().resolve_conj().resolve_neg().contiguous().view({-1})};
}

}  // namespace ddpxx
