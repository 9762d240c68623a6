// ddpxx/comm/collectives.hpp — collectives: each `start_…` returns a Pending, and its short form waits. In a world of
// one they end at once and send nothing.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/pending.hpp>
#include <ddpxx/comm/reduce.hpp>

namespace ddpxx {

// Errors  `config` for tensors that do not have the shapes below; otherwise those of Pending.

/// Reduces `tensor` over all ranks, in place. All ranks get a result with equal bits. The sum of boolean values is
/// their "or". Where some ranks have NaN, the sum is NaN, and the minimum and maximum are NaN or a number of other
/// ranks, depending on the backend: to find out whether a rank has NaN, sum a flag.
///
/// Shapes  `tensor` has no gaps between its elements in memory, and equal strides on all ranks.
Pending start_all_reduce(at::Tensor tensor, const Group& group, Reduce reduce = Reduce::sum);
void all_reduce(at::Tensor tensor, const Group& group, Reduce reduce = Reduce::sum);

/// Sums `input` over all ranks and writes the r-th of W equal pieces to `output` on rank r; `output` may be that piece
/// of `input`. Gloo's own reduce-scatter is an all-reduce of the whole tensor. Over Gloo each rank instead receives the
/// other ranks' values of its piece and adds them up in rank order, which sends half the bytes.
/// Shapes  `input` has W times the elements of `output`; both 1-D and contiguous. Over Gloo and shared memory their
///         types may differ.
Pending start_reduce_scatter(at::Tensor output, at::Tensor input, const Group& group);
void reduce_scatter(at::Tensor output, at::Tensor input, const Group& group);

/// Concatenates the `input` of all ranks, in rank order, in `output` on every rank.
/// Shapes  `output` has W times the elements of `input`; both contiguous.
Pending start_all_gather(at::Tensor output, at::Tensor input, const Group& group);
void all_gather(at::Tensor output, at::Tensor input, const Group& group);

/// Sends each rank a part of `input`, in rank order, and writes the parts received from the ranks to `output`, in rank
/// order.
/// Shapes  Both 1-D, contiguous and of one type. `input_sizes` and `output_sizes` have the number of elements to and
///         from each rank; what one rank sends to another is what that one expects.
void all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_sizes,
                std::vector<std::int64_t> input_sizes, const Group& group);

/// Sends the bytes of `tensor` on rank `root` to every rank.
/// Shapes  `tensor` has no gaps between its elements in memory, and equal strides on all ranks.
Pending start_broadcast(at::Tensor tensor, const Group& group, int root = 0);
void broadcast(at::Tensor tensor, const Group& group, int root = 0);

/// Returns when every rank has called it.
void barrier(const Group& group);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/collectives_inl.hpp>
#endif
