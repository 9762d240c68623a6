// ddpxx/parallel/sync_batch_norm.hpp — batch norm over the samples of all ranks together.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

namespace detail {
struct BatchStatistics;
}

struct SyncBatchNormOptions {
  double eps = 1e-5;  ///< Added to the variance.
  /// Weight of a batch in the running statistics. Without a value, the running statistics are the means over all
  /// batches; a step reads their number from the device then, and cannot be captured in a CUDA graph.
  std::optional<double> momentum = 0.1;
  bool affine = true;  ///< Whether each channel has a weight and a bias.
};

/// Batch norm whose mean and variance are those of the samples of all ranks together, so that a result does not depend
/// on how a batch is dealt to ranks. With a group of one it is a batch norm of this rank's samples. In evaluation mode
/// it uses the running statistics, and sends nothing.
/// Shapes  [N, C, ...], C being `channels`; N may differ between ranks, and be 0 where there are several.
/// Ranks   Collective in training: forward gathers 2 C + 1 numbers, backward sums 2 C. All ranks call their layers in
///         one order. A rank that sits out a step calls none, so that Join works with throw_on_early_termination only.
///         The group outlives the layer, and the backward passes of its results.
/// Errors  `config` for another shape, in a group of one where training has one value per channel, in training without
///         a momentum, if Module::to() has converted the count of batches, and in backward, if it is to create a graph.
/// Source  torch.nn.SyncBatchNorm; parameters and buffers have its names, and those of torch.nn.BatchNorm.
class SyncBatchNorm : public torch::nn::Module {
 public:
  SyncBatchNorm(std::int64_t channels, const Group& group, const SyncBatchNormOptions& options = {});
  SyncBatchNorm(std::int64_t, const Group&&, const SyncBatchNormOptions& = {}) = delete;
  at::Tensor forward(const at::Tensor& x);

 private:
  void check(const at::Tensor& x) const;
  /// The weight of the present batch in the running statistics.
  /// Errors  `config` where it follows from the number of batches, and Module::to() has converted that.
  double momentum() const;
  /// The statistics of a batch, which it adds to the running ones.
  detail::BatchStatistics track(const at::Tensor& x);

  SyncBatchNormOptions options_;
  const Group* group_;
  at::Tensor weight_, bias_;  ///< Undefined without affine.
  at::Tensor running_mean_, running_var_, num_batches_tracked_;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/parallel/sync_batch_norm_inl.hpp>
#endif
