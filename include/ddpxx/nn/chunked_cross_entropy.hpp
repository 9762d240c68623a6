// ddpxx/nn/chunked_cross_entropy.hpp — the cross-entropy of a linear head, whose logits are never all in memory.
// The forward pass computes the logits of some rows, their losses and at once their gradients, then reuses the memory
// for the next rows, as Liger's kernels do. The backward pass only multiplies by the incoming gradient.
// Shape suffixes: N rows, C width, V vocabulary, K rows of a chunk.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace ddpxx {

/// The summed cross-entropy of the logits `hidden weight^T`; a target of -1 does not count. The logits are computed
/// `chunk_rows` rows at a time, in the type that a linear layer would use, and the softmax in float32, of float64 in
/// float64. Gradients need memory for one chunk of logits, and for the gradients of `hidden` and `weight`, which exist
/// from the forward pass on.
/// Shapes  `hidden_NC` [N, C], `weight_VC` [V, C], `targets_N` int64 [N]; result float32 (float64 for float64), 0-dim.
/// Errors  `config` for other shapes, for targets that are not whole numbers, for tensors of several devices and for
///         chunk_rows below 1; in backward, if it is to create a graph; on a GPU, where a kernel computes the losses of
///         float32, bfloat16 and float16, if NVRTC is not found. A target out of range is an error of ATen on a CPU,
///         and one of the device on a GPU.
/// Source  Hsu et al. 2024, arXiv:2410.10989 (Liger Kernel).
at::Tensor chunked_cross_entropy(const at::Tensor& hidden_NC, const at::Tensor& weight_VC, const at::Tensor& targets_N,
                                 std::int64_t chunk_rows);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/nn/chunked_cross_entropy_inl.hpp>
#endif
