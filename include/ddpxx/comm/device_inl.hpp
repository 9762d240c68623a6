// ddpxx/comm/device_inl.hpp — the definitions of device.hpp.
#pragma once

#include <string>
#include <string_view>

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <ddpxx/comm/device.hpp>
#include <ddpxx/comm/rank_info.hpp>
#include <ddpxx/comm/unused_gpu.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>

namespace ddpxx {

DDPXX_INLINE int detail::num_gpus() {
  return at::globalContext().hasCUDA() ? at::detail::getCUDAHooks().deviceCount() : 0;
}

DDPXX_INLINE at::Device pick_device(std::string_view wish, const RankInfo& rank_info, Backend backend) {
  if (wish == "cpu") return at::kCPU;
  if (wish != "auto" && wish != "cuda")
    throw Error{Errc::config, "device \"" + std::string{wish} + "\" is none of auto, cpu, cuda"};
  const int gpus = detail::num_gpus();
  if (const auto number = detail::gpu_of(rank_info.local_rank, gpus, backend)) {
    const at::Device device{at::kCUDA, static_cast<c10::DeviceIndex>(*number)};
    c10::impl::VirtualGuardImpl{at::kCUDA}.setDevice(device);
    return device;
  }
  if (wish == "auto" && gpus == 0) {
    if (const auto why = detail::unused_gpu_text(at::detail::getCUDAHooks().isBuilt()); !why.empty())
      Log{rank_info.rank.value}.info(why);
    return at::kCPU;
  }
  throw Error{Errc::config, gpus == 0 ? "device=cuda: this build has no CUDA, or this host no GPU that it can use"
                                      : "local rank " + std::to_string(rank_info.local_rank.value) +
                                            " has no GPU: this host has " + std::to_string(gpus) +
                                            "; start at most one rank a GPU, or set comm.backend=gloo or device=cpu"};
}

}  // namespace ddpxx
