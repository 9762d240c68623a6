// ddpxx/data/batch.hpp — samples that go through the model together.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace ddpxx {

/// Inputs and what the model should make of them.
struct Batch {
  at::Tensor inputs;
  at::Tensor targets;
  std::int64_t num_tokens = 0;  ///< Targets that count in the loss; known without looking at the tensors.

  /// The same batch on another device; from pinned memory the copy does not wait.
  Batch to(at::Device device) const {
    const auto move = [device](const at::Tensor& tensor) { return tensor.to(device, tensor.is_pinned()); };
    return {move(inputs), move(targets), num_tokens};
  }
};

}  // namespace ddpxx
