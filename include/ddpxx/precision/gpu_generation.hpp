// ddpxx/precision/gpu_generation.hpp — refuses GPUs without units for bfloat16 and TF32.
#pragma once

#include <string>
#include <string_view>

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Device.h>
#include <c10/core/DeviceGuard.h>

#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// Refuses an NVIDIA GPU older than Ampere (compute capability 8.0), the first generation with units for bfloat16 and
/// TF32: on an older one LibTorch would compute slower than in float32. Other devices are accepted. A GPU in a build
/// without cuDNN is accepted too, because LibTorch shows the generation, without CUDA's headers, only through cuDNN.
/// Errors  `config`, naming `precision` and what to choose `instead`.
inline void require_ampere(std::string_view precision, std::string_view instead, at::Device device,
                           const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks()) {
  if (device.type() != at::kCUDA || !hooks.hasCUDA() || !hooks.hasCuDNN() || hooks.hasROCM()) return;
  const auto is_ampere = [&] {  // the hooks answer for the current device
    if (!device.has_index() || device.index() == hooks.current_device())
      return hooks.supportsBFloat16ConvolutionWithCuDNNv8();
    const c10::DeviceGuard guard{device};
    return hooks.supportsBFloat16ConvolutionWithCuDNNv8();
  };
  if (is_ampere()) return;
  throw Error{Errc::config, "precision " + std::string{precision} + ": the GPU " + device.str() +
                                " is older than Ampere (compute capability 8.0) and has no units for it; choose " +
                                std::string{instead}};
}

}  // namespace ddpxx
