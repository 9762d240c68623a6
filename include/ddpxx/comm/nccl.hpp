// ddpxx/comm/nccl.hpp — collectives between GPUs: the NCCL backend of LibTorch. Needs the component ddpxx::cuda.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/cuda/CUDAContext.h>
#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <ddpxx/comm/connect_options.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/meeting.hpp>
#include <ddpxx/comm/part_ranks.hpp>
#include <ddpxx/comm/within.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/number_list.hpp>

namespace ddpxx {

namespace detail {

/// The device with its number: a GPU without a number is this thread's current one.
inline at::Device numbered(at::Device device) {
  return device.has_index() ? device : c10::impl::VirtualGuardImpl{device.type()}.getDevice();
}

/// The UUID of a GPU in the form of `nvidia-smi -L`; empty if the driver does not know it.
inline std::string gpu_uuid(at::Device gpu) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto& bytes = at::cuda::getDeviceProperties(gpu.index())->uuid.bytes;
  if (std::all_of(std::begin(bytes), std::end(bytes), [](char byte) { return byte == 0; })) return {};
  std::string text = "GPU";
  for (std::size_t i = 0; i < std::size(bytes); ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += {kDigits[byte / 16U], kDigits[byte % 16U]};
  }
  return text;
}

/// The options with the number and the UUID of the GPU, if the device is one.
/// Errors  `config` if the program cannot use that GPU.
inline ConnectOptions with_gpu(ConnectOptions options) {
  if (!options.device.is_cuda()) return options;
  try {
    options.device = numbered(options.device);
    if (options.gpu_uuid.empty()) options.gpu_uuid = gpu_uuid(options.device);
    return options;
  } catch (const std::exception& cause) {
    throw Error{Errc::config, "device " + options.device.str() + " cannot be used"}.with("cause", first_line(cause));
  }
}

/// The options of the NCCL backend of the ranks of `meeting`.
inline c10::intrusive_ptr<c10d::ProcessGroupNCCL::Options> nccl_options(const Meeting& meeting) {
  // With the default priority NCCL's kernels wait behind the kernels of the layers that are queued already.
  auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
  options->timeout = meeting.collective_timeout;
#ifdef NCCL_HAS_CONFIG
  // The communicator is made before the call returns, whatever TORCH_NCCL_USE_COMM_NONBLOCKING says.
  options->config.blocking = 1;
#endif
  // The record of collectives that LibTorch writes after a failure tells groups apart by these names and numbers.
  std::vector<int> ranks(static_cast<std::size_t>(meeting.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  if (meeting.number) ranks = part_ranks(*meeting.store, *meeting.number, meeting.rank, meeting.world_size);
  options->group_name = meeting.number ? "ranks " + number_list(ranks) : "all ranks";
  options->global_ranks_in_group.assign(ranks.begin(), ranks.end());
  return options;
}

}  // namespace detail

/// Connects the ranks that have met in `meeting` over NCCL; this rank uses `device`, or this thread's current GPU if
/// that has no number. The communicator is made at once, so that a wrong set-up causes an error here and not in the
/// first step.
/// Ranks   Collective. Each rank has a GPU of its own.
/// Errors  `peer` with NCCL's own text, or if the ranks do not connect in time. NCCL cannot be interrupted, so that its
///         thread then goes on until the process ends.
inline Group connect_nccl(const Meeting& meeting, at::Device device) {
  try {
    device = detail::numbered(device);
    const auto limit = meeting.time_to_connect();
    auto backend = within(std::chrono::steady_clock::now() + limit,
                          [store = meeting.store, rank = meeting.rank, size = meeting.world_size,
                           options = detail::nccl_options(meeting), device] {
                            c10::impl::VirtualGuardImpl{device.type()}.setDevice(device);  // each thread has its own
                            auto made = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
                            made->setBoundDeviceId(device);
                            made->eagerConnectSingleDevice(device);
                            return made;
                          });
    if (!backend)
      throw Error{Errc::peer, "the ranks met but did not connect over NCCL within " +
                                  std::to_string(limit.count() / 1000) +
                                  " s: a rank died meanwhile, a firewall is between them, or NCCL_SOCKET_IFNAME must "
                                  "name the interface to use; NCCL_DEBUG=INFO tells more"};
    return Group{std::move(*backend), meeting.store, device,
                 [meeting, device](c10::intrusive_ptr<c10d::Store> store, int rank, int size) {
                   return connect_nccl(meeting.part(std::move(store), rank, size), device);
                 }};
  } catch (Error& error) {
    throw error.with("rank", meeting.rank_in_run()).with("device", device.str());
  } catch (const std::exception& cause) {
    throw Error{Errc::peer, "the ranks met but cannot reach each other over NCCL"}
        .with("rank", meeting.rank_in_run())
        .with("device", device.str())
        .with("cause", first_line(cause));
  }
}

}  // namespace ddpxx
