// ddpxx/comm/device.hpp — chooses the device on which a rank computes.
#pragma once

#include <string_view>

#include <c10/core/Device.h>

#include <ddpxx/comm/rank_info.hpp>

namespace ddpxx {

/// The device that `wish` names: `cpu`; `cuda`, the GPU with this rank's local number; or `auto`, which takes that GPU
/// if the build has CUDA and there is one. A GPU becomes this thread's current device. Where `auto` takes the CPU of a
/// host that shows a GPU, rank 0 logs why.
/// Errors  `config` for a device that this host or build does not have.
at::Device pick_device(std::string_view wish, const RankInfo& rank_info);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/device_inl.hpp>
#endif
