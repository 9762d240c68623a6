// ddpxx/comm/collectives.hpp — what ranks do together: every `start_…` returns a Pending, its short form waits.
// In a world of one all of them are done at once and move no byte.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/pending.hpp>

namespace ddpxx {

enum class Reduce { sum, min, max };

namespace detail {

inline c10d::ReduceOp reduce_op(Reduce reduce) {
  switch (reduce) {
    case Reduce::min:
      return c10d::ReduceOp::MIN;
    case Reduce::max:
      return c10d::ReduceOp::MAX;
    case Reduce::sum:
      break;
  }
  return c10d::ReduceOp::SUM;
}

/// Starts `collective(backend)`; an error that surfaces at once reads like one that surfaces in wait().
template <class Start>
Pending start(std::string_view op, std::size_t bytes, const Group& group, Start&& collective) {
  if (group.backend() == nullptr) return {};
  const CollectiveCall call{op, static_cast<std::int64_t>(bytes), group.rank(), group.size()};
  try {
    return {collective(*group.backend()), call};
  } catch (const std::exception& cause) {
    throw call.error(cause);
  }
}

}  // namespace detail

/// Reduces `tensor` over all ranks, in place: every rank ends with the same bits.
inline Pending start_all_reduce(at::Tensor tensor, const Group& group, Reduce reduce = Reduce::sum) {
  return detail::start("all_reduce", tensor.nbytes(), group, [&](c10d::Backend& backend) {
    std::vector<at::Tensor> tensors{tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = detail::reduce_op(reduce);
    return backend.allreduce(tensors, options);
  });
}
inline void all_reduce(at::Tensor tensor, const Group& group, Reduce reduce = Reduce::sum) {
  start_all_reduce(std::move(tensor), group, reduce).wait();
}

/// Sums `input` over all ranks and leaves rank r the r-th of W equal pieces in `output`, which may be that piece.
/// Gloo's own reduce-scatter is an all-reduce of everything; over Gloo each rank is sent the pieces of the others
/// instead and adds them up in rank order, which is half the bytes.
/// Shapes  `input` has W times the elements of `output`; both 1-D and contiguous. Over Gloo their types may differ.
inline Pending start_reduce_scatter(at::Tensor output, at::Tensor input, const Group& group) {
  auto* backend = group.backend();
  if (backend == nullptr) {
    output.copy_(input.view(output.sizes()));
    return {};
  }
  const CollectiveCall call{"reduce_scatter", static_cast<std::int64_t>(input.nbytes()), group.rank(), group.size()};
  try {
    if (backend->getBackendName() != "gloo") return {backend->_reduce_scatter_base(output, input), call};
    auto pieces = at::empty_like(input);
    std::vector<std::int64_t> even;
    auto work = backend->alltoall_base(pieces, input, even, even);
    return {std::move(work), call, [output, pieces = pieces.view({group.size(), -1})]() mutable {
              output.copy_(pieces[0]);
              for (std::int64_t rank = 1; rank < pieces.size(0); ++rank) output.add_(pieces[rank]);
            }};
  } catch (const std::exception& cause) {
    throw call.error(cause);
  }
}
inline void reduce_scatter(at::Tensor output, at::Tensor input, const Group& group) {
  start_reduce_scatter(std::move(output), std::move(input), group).wait();
}

/// Puts the `input` of every rank side by side, in rank order, into `output` on every rank.
/// Shapes  `output` has W times the elements of `input`; both contiguous.
inline Pending start_all_gather(at::Tensor output, at::Tensor input, const Group& group) {
  if (group.backend() == nullptr) output.copy_(input.view(output.sizes()));
  return detail::start("all_gather", output.nbytes(), group,
                       [&](c10d::Backend& backend) { return backend._allgather_base(output, input); });
}
inline void all_gather(at::Tensor output, at::Tensor input, const Group& group) {
  start_all_gather(std::move(output), std::move(input), group).wait();
}

/// Sends each rank a part of `input`, in rank order, and puts the parts that the ranks send here into `output`, in rank
/// order.
/// Shapes  Both 1-D, contiguous and of one type. `input_sizes` and `output_sizes` have the number of elements to and
/// from
///         each rank; what one rank sends to another is what that one expects.
inline void all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_sizes,
                       std::vector<std::int64_t> input_sizes, const Group& group) {
  if (group.backend() == nullptr) output.copy_(input);
  detail::start("all_to_all", input.nbytes(), group, [&](c10d::Backend& backend) {
    return backend.alltoall_base(output, input, output_sizes, input_sizes);
  }).wait();
}

/// Gives every rank the bytes that `root` has in `tensor`.
inline Pending start_broadcast(at::Tensor tensor, const Group& group, int root = 0) {
  return detail::start("broadcast", tensor.nbytes(), group, [&](c10d::Backend& backend) {
    std::vector<at::Tensor> tensors{tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return backend.broadcast(tensors, options);
  });
}
inline void broadcast(at::Tensor tensor, const Group& group, int root = 0) {
  start_broadcast(std::move(tensor), group, root).wait();
}

/// Returns when every rank has come here.
inline void barrier(const Group& group) {
  detail::start("barrier", 0, group, [](c10d::Backend& backend) { return backend.barrier(); }).wait();
}

}  // namespace ddpxx
