// ddpxx/nn/kernels/launch.hpp — how a kernel is started, on a GPU or by a test in its place.
#pragma once

#include <cstdint>
#include <functional>

#include <ddpxx/nn/kernels/source.hpp>

namespace ddpxx::detail {

/// What to do where the fused kernels cannot be used, for messages.
inline constexpr const char* kWithoutKernels = "set model.fused=false and model.loss_chunk=0";

/// The sizes of a launch: grid and threads of a block.
struct LaunchShape {
  std::int64_t grid_x = 1;
  std::int64_t grid_y = 1;
  std::int64_t threads = 32;
};

/// Starts the kernel `name` of a CUDA source; `arguments` are pointers to its arguments, as for cuLaunchKernel.
using LaunchKernel =
    std::function<void(const KernelSource& source, const char* name, const LaunchShape& shape, void** arguments)>;

/// Starts a kernel whose parameters have the types of `arguments`.
template <class... Arguments>
void launch_with(const LaunchKernel& launch, const KernelSource& source, const char* name, const LaunchShape& shape,
                 Arguments... arguments) {
  void* pointers[] = {static_cast<void*>(&arguments)...};
  launch(source, name, shape, pointers);
}

}  // namespace ddpxx::detail
