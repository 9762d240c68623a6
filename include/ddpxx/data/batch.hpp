// ddpxx/data/batch.hpp — samples that go through the model together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace ddpxx {

/// Inputs of a model, and the targets with which the loss compares its outputs.
struct Batch {
  at::Tensor inputs;
  at::Tensor targets;
  std::int64_t num_tokens = 0;  ///< Number of targets that count in the loss, known without reading the tensors.

  /// A copy of the batch on `device`. A copy to a GPU is asynchronous: it goes through pinned memory, where a dataset
  /// or a loader has not put the batch there already.
  Batch to(at::Device device) const {
    const auto move = [device](const at::Tensor& tensor) {
      const bool to_gpu = tensor.is_cpu() && device.is_cuda();
      if (!to_gpu) return tensor.to(device);
      // A copy of a tensor with gaps goes through memory that is not pinned.
      const auto dense = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
      const auto source = dense.is_pinned() ? dense : dense.pin_memory();
      return source.to(device, /*non_blocking=*/true);
    };
    return {move(inputs), move(targets), num_tokens};
  }

  /// Calls `visit(tensor)` for each tensor of the batch, which may replace it.
  void each_tensor(const auto& visit) {
    visit(inputs);
    visit(targets);
  }

  /// The batch in at most `parts` parts with about equal numbers of samples. `num_tokens` of each part is 0: it is
  /// known for the whole batch only.
  std::vector<Batch> split(std::int64_t parts) const {
    const auto some_inputs = inputs.chunk(parts), some_targets = targets.chunk(parts);
    std::vector<Batch> batches;
    for (std::size_t i = 0; i < some_inputs.size(); ++i) batches.push_back({some_inputs[i], some_targets[i], 0});
    return batches;
  }
};

}  // namespace ddpxx
