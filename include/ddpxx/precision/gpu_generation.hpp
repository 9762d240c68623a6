// ddpxx/precision/gpu_generation.hpp — which GPUs multiply bfloat16 and TF32 matrices.
#pragma once

#include <string>
#include <string_view>

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Device.h>
#include <c10/core/DeviceGuard.h>

#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// Refuses an NVIDIA GPU of before Ampere (compute capability 8.0), the first generation with units for bfloat16 and
/// TF32: LibTorch would compute all the same, slower than in float32. Other devices pass; so does a GPU in a build
/// without cuDNN, through which alone LibTorch tells the generation without CUDA's headers.
/// Errors  `config`, naming `precision` and what to choose `instead`.
inline void require_ampere(std::string_view precision, std::string_view instead, at::Device device,
                           const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks()) {
  if (device.type() != at::kCUDA || !hooks.hasCUDA() || !hooks.hasCuDNN() || hooks.hasROCM()) return;
  const auto is_ampere = [&] {  // the hooks speak of the current device
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
