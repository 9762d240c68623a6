// ddpxx/comm/connect.hpp — connects the ranks that meet at an address to a group.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <c10/core/Device.h>

#include <ddpxx/comm/connect_options.hpp>
#include <ddpxx/comm/group.hpp>
#ifdef USE_C10D_NCCL  // set by the component ddpxx::cuda
#include <ddpxx/comm/nccl.hpp>
#endif
#include <ddpxx/comm/rank_info.hpp>

namespace ddpxx {

struct Meeting;

struct Address {
  std::string host;
  std::uint16_t port = 0;
};

/// Reads `tcp://host:port`; an IPv6 host is written in brackets.
/// Errors  `peer`, which names the expected form.
Address parse_address(std::string_view text);

namespace detail {

/// Connects ranks that have met, each with a GPU.
using ConnectGPUs = Group (*)(const Meeting& meeting, at::Device device);

/// Does what `connect` does. `connect_gpus` is null in a build without CUDA.
Group connect_ranks(std::string_view address, const RankInfo& rank_info, const ConnectOptions& options,
                    ConnectGPUs connect_gpus);

}  // namespace detail

/// Joins the group of all ranks of `rank_info` that meet at `address`, over the backend that `backend_for` names. A
/// world of one needs no address and opens no port. Under `run_program`, if several ranks share a machine, each
/// computes with its share of the cores from now on, unless the user has set a number of threads
/// (`share_cores`), and a process that computes on the CPU keeps its freed memory (`keep_freed_blocks`) and has no gaps
/// between its tensors (`use_tensor_allocator`). Other processes keep their settings, and may call these functions
/// themselves.
///
/// Ranks   Collective.
/// Errors  `peer`: see `meet`, `connect_gloo` and `connect_nccl`; `config` for a GPU in a build without CUDA.
inline Group connect(std::string_view address, const RankInfo& rank_info, const ConnectOptions& options = {}) {
#ifdef USE_C10D_NCCL
  return detail::connect_ranks(address, rank_info, detail::with_gpu(options), connect_nccl);
#else
  return detail::connect_ranks(address, rank_info, options, nullptr);
#endif
}

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/connect_inl.hpp>
#endif
