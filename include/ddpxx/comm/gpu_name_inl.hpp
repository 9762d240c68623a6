// ddpxx/comm/gpu_name_inl.hpp — the definitions of gpu_name.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include <ATen/DynamicLibrary.h>
#include <c10/core/Device.h>

#include <ddpxx/comm/gpu_name.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

DDPXX_INLINE std::string detail::gpu_text(std::string_view name, std::uint64_t bytes) {
  return std::string{name} + ", " + std::to_string(bytes >> 30U) + " GiB";
}

DDPXX_INLINE std::string gpu_name(at::Device device) try {
  if (!device.is_cuda() || !device.has_index()) return {};
  // ATen does not tell the name, and CUDA's headers are not there for every program. These functions of the driver are
  // part of its stable interface; they number the GPUs as LibTorch does, and return 0 where they succeed.
  at::DynamicLibrary driver{"libcuda.so.1", nullptr, /*leak_handle=*/true};
  const auto get_device = reinterpret_cast<int (*)(int*, int)>(driver.sym("cuDeviceGet"));
  const auto get_name = reinterpret_cast<int (*)(char*, int, int)>(driver.sym("cuDeviceGetName"));
  const auto get_memory = reinterpret_cast<int (*)(std::size_t*, int)>(driver.sym("cuDeviceTotalMem_v2"));
  std::array<char, 256> name{};
  int handle = 0;
  std::size_t bytes = 0;
  if (get_device(&handle, device.index()) != 0 ||
      get_name(name.data(), static_cast<int>(name.size()) - 1, handle) != 0 || get_memory(&bytes, handle) != 0)
    return {};
  return detail::gpu_text(name.data(), bytes);
} catch (const std::exception&) {
  return {};  // no driver, or an older one
}

}  // namespace ddpxx
