// ddpxx/comm/unused_gpu_inl.hpp — the definitions of unused_gpu.hpp.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include <ddpxx/comm/unused_gpu.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

DDPXX_INLINE std::string detail::unused_gpu_text(bool is_linked, const std::filesystem::path& root) {
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"))
    if (const std::string_view devices{visible}; devices.empty() || devices == "-1") return {};
  for (const char* sign : {"dev/nvidiactl", "proc/driver/nvidia/version"}) {
    std::error_code failure;
    if (!std::filesystem::exists(root / sign, failure)) continue;
    return "device=auto: this run computes on the CPU, although " + (root / sign).string() + " shows a GPU: " +
           (is_linked ? "LibTorch cannot use it; look at nvidia-smi and at CUDA_VISIBLE_DEVICES"
                      : "the program was built without the component ddpxx::cuda");
  }
  return {};
}

}  // namespace ddpxx
