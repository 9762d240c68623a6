// ddpxx/layers/changes_in_place.hpp — how often a tensor was changed in place.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace ddpxx::detail {

/// Autograd's count of changes of a tensor in place; 0 for an undefined tensor, and for one of inference mode, which
/// has no count.
inline std::int64_t changes_in_place(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_inference() ? tensor._version() : 0;
}

}  // namespace ddpxx::detail
