// ddpxx/comm/device.hpp — which device a rank computes on.
#pragma once

#include <string_view>

#include <c10/core/Device.h>

#include <ddpxx/comm/place.hpp>

namespace ddpxx {

/// The device that `wish` names: `cpu`; `cuda`, the GPU with this rank's local number; or `auto`, which takes that GPU
/// if the build has CUDA and there is one. A GPU becomes this thread's current device.
/// Errors  `config` for a wish that this host or build cannot grant.
at::Device pick_device(std::string_view wish, const Place& place);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/device_inl.hpp>
#endif
