// ddpxx/comm/collectives.hpp — what ranks do together: every `start_…` returns a Pending, its short form waits.
// In a world of one all of them are done at once and move no byte.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/pending.hpp>

namespace ddpxx {

enum class Reduce { sum, min, max };

/// Reduces `tensor` over all ranks, in place: every rank ends with the same bits.
Pending start_all_reduce(at::Tensor tensor, const Group& group, Reduce reduce = Reduce::sum);
void all_reduce(at::Tensor tensor, const Group& group, Reduce reduce = Reduce::sum);

/// Sums `input` over all ranks and leaves rank r the r-th of W equal pieces in `output`, which may be that piece.
/// Gloo's own reduce-scatter is an all-reduce of everything; over Gloo each rank is sent the pieces of the others
/// instead and adds them up in rank order, which is half the bytes.
/// Shapes  `input` has W times the elements of `output`; both 1-D and contiguous. Over Gloo their types may differ.
Pending start_reduce_scatter(at::Tensor output, at::Tensor input, const Group& group);
void reduce_scatter(at::Tensor output, at::Tensor input, const Group& group);

/// Puts the `input` of every rank side by side, in rank order, into `output` on every rank.
/// Shapes  `output` has W times the elements of `input`; both contiguous.
Pending start_all_gather(at::Tensor output, at::Tensor input, const Group& group);
void all_gather(at::Tensor output, at::Tensor input, const Group& group);

/// Sends each rank a part of `input`, in rank order, and puts the parts that the ranks send here into `output`, in rank
/// order.
/// Shapes  Both 1-D, contiguous and of one type. `input_sizes` and `output_sizes` have the number of elements to and
/// from
///         each rank; what one rank sends to another is what that one expects.
void all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_sizes,
                std::vector<std::int64_t> input_sizes, const Group& group);

/// Gives every rank the bytes that `root` has in `tensor`.
Pending start_broadcast(at::Tensor tensor, const Group& group, int root = 0);
void broadcast(at::Tensor tensor, const Group& group, int root = 0);

/// Returns when every rank has come here.
void barrier(const Group& group);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/collectives_inl.hpp>
#endif
