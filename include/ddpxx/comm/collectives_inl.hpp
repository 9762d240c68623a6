// ddpxx/comm/collectives_inl.hpp — the definitions of collectives.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/pending.hpp>
#include <ddpxx/comm/shared_tensors.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

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

inline bool is_gloo(const c10d::Backend& backend) { return backend.getBackendName() == "gloo"; }

/// True for the backends that lack some types of elements: what is only copied is sent as bytes then.
inline bool lacks_types(const c10d::Backend& backend) { return is_gloo(backend) || backend.getBackendName() == "nccl"; }

/// Copies what this rank would send to itself. Backends record nothing for autograd, and neither does this.
inline void copy_in_world_of_one(at::Tensor& output, const at::Tensor& input) {
  const c10::NoGradGuard no_grad;
  output.copy_(input.view(output.sizes()));
}

/// Starts `collective(backend)`. An error is that of `CollectiveCall::throw_start_error`.
template <class Start>
Pending start(std::string_view op, std::size_t bytes, const Group& group, Start&& collective) {
  if (group.backend() == nullptr) return {};
  const CollectiveCall call{op, static_cast<std::int64_t>(bytes), group.number(), group.size(), group.is_part()};
  try {
    return {collective(*group.backend()), call, {}, group.wait_clock()};
  } catch (const std::exception& cause) {
    call.throw_start_error(cause);
  }
}

}  // namespace detail

DDPXX_INLINE Pending start_all_reduce(at::Tensor tensor, const Group& group, Reduce reduce) {
  return detail::start("all_reduce", tensor.nbytes(), group, [&](c10d::Backend& backend) {
    detail::check_dense(tensor);  // Gloo ignores the strides, and would write outside the tensor
    if (detail::is_gloo(backend)) detail::check_type_of_gloo(tensor.scalar_type());
    // NCCL refuses the elements in another order.
    std::vector<at::Tensor> tensors{tensor.is_contiguous() ? tensor : detail::elements_of(tensor)};
    c10d::AllreduceOptions options;
    // Gloo would add the bytes of boolean values.
    const bool sums_booleans = reduce == Reduce::sum && tensor.scalar_type() == at::kBool;
    options.reduceOp = detail::reduce_op(sums_booleans ? Reduce::max : reduce);
    return backend.allreduce(tensors, options);
  });
}

DDPXX_INLINE void all_reduce(at::Tensor tensor, const Group& group, Reduce reduce) {
  start_all_reduce(std::move(tensor), group, reduce).wait();
}

DDPXX_INLINE Pending start_reduce_scatter(at::Tensor output, at::Tensor input, const Group& group) {
  auto* backend = group.backend();
  if (backend == nullptr) {
    detail::copy_in_world_of_one(output, input);
    return {};
  }
  const CollectiveCall call{"reduce_scatter", static_cast<std::int64_t>(input.nbytes()), group.number(), group.size(),
                            group.is_part()};
  try {
    detail::check_reduce_scatter(output, input, group.size());
    if (!detail::is_gloo(*backend)) return {backend->_reduce_scatter_base(output, input), call, {}, group.wait_clock()};
    // Gloo's own reduce-scatter sends the whole tensor; see collectives.hpp.
    const auto pieces = at::empty_like(input);
    auto received = detail::byte_view(pieces), sent = detail::byte_view(input);
    std::vector<std::int64_t> even;
    auto work = backend->alltoall_base(received, sent, even, even);
    auto add = [output, pieces = pieces.view({group.size(), output.numel()})] {
      const c10::NoGradGuard no_grad;
      detail::sum_rows(output, pieces);
    };
    return {std::move(work), call, std::move(add), group.wait_clock()};
  } catch (const std::exception& cause) {
    call.throw_start_error(cause);
  }
}

DDPXX_INLINE void reduce_scatter(at::Tensor output, at::Tensor input, const Group& group) {
  start_reduce_scatter(std::move(output), std::move(input), group).wait();
}

DDPXX_INLINE Pending start_all_gather(at::Tensor output, at::Tensor input, const Group& group) {
  if (group.backend() == nullptr) detail::copy_in_world_of_one(output, input);
  return detail::start("all_gather", output.nbytes(), group, [&](c10d::Backend& backend) {
    detail::check_all_gather(output, input, group.size());
    if (!detail::lacks_types(backend)) return backend._allgather_base(output, input);
    auto received = detail::byte_view(output), sent = detail::byte_view(input);
    return backend._allgather_base(received, sent);
  });
}

DDPXX_INLINE void all_gather(at::Tensor output, at::Tensor input, const Group& group) {
  start_all_gather(std::move(output), std::move(input), group).wait();
}

DDPXX_INLINE void all_to_all(at::Tensor output, at::Tensor input, std::vector<std::int64_t> output_sizes,
                             std::vector<std::int64_t> input_sizes, const Group& group) {
  if (group.backend() == nullptr) detail::copy_in_world_of_one(output, input);
  detail::start("all_to_all", input.nbytes(), group, [&](c10d::Backend& backend) {
    detail::check_all_to_all(output, input, output_sizes, input_sizes, group.size());
    if (detail::is_gloo(backend)) detail::check_type_of_gloo(input.scalar_type());
    return backend.alltoall_base(output, input, output_sizes, input_sizes);
  }).wait();
}

DDPXX_INLINE Pending start_broadcast(at::Tensor tensor, const Group& group, int root) {
  return detail::start("broadcast", tensor.nbytes(), group, [&](c10d::Backend& backend) {
    detail::check_dense(tensor);
    std::vector<at::Tensor> tensors{detail::lacks_types(backend) ? detail::byte_view(tensor) : tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return backend.broadcast(tensors, options);
  });
}

DDPXX_INLINE void broadcast(at::Tensor tensor, const Group& group, int root) {
  start_broadcast(std::move(tensor), group, root).wait();
}

DDPXX_INLINE void barrier(const Group& group) {
  detail::start("barrier", 0, group, [](c10d::Backend& backend) { return backend.barrier(); }).wait();
}

}  // namespace ddpxx
