// ddpxx/nn/kernels/driver.hpp — starts kernels on the current stream of the current GPU, through CUDA's driver.
// The driver's functions have a fixed binary interface and are found when they are first used, so that programs for
// CPUs need nothing of CUDA.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/nn/kernels/launch.hpp>
#include <ddpxx/nn/kernels/nvrtc.hpp>
#include <ddpxx/nn/kernels/shared_library.hpp>
#include <ddpxx/nn/kernels/source.hpp>

namespace ddpxx::detail {

/// Whether a result of CUDA's driver tells of the GPU rather than of the call: too little memory, a defect, or the
/// failure of a kernel that was started before, which CUDA reports in whichever call comes next.
inline bool tells_of_device(int result) {
  constexpr int kOutOfMemory = 2, kDefectiveMemory = 214, kDefectiveLink = 220, kUnknown = 999;
  constexpr int kIllegalAddress = 700, kTooManyResources = 701,
                kLaunchFailed = 719;  // the second is of the call itself
  return result == kOutOfMemory || result == kDefectiveMemory || result == kDefectiveLink || result == kUnknown ||
         (result >= kIllegalAddress && result <= kLaunchFailed && result != kTooManyResources);
}

/// Throws for a result of the driver that is not 0, with the driver's text of it.
/// Errors  Those of the GPU as LibTorch throws its own; `config` for others.
[[noreturn]] inline void throw_driver_error(int result, const std::string& text, std::string_view name) {
  if (tells_of_device(result))
    throw c10::AcceleratorError{
        {__func__, __FILE__, __LINE__},
        result,
        ("CUDA error: " + text + "; found when the fused kernel ").append(name) +
            " was to be started, but it may be of an earlier kernel, which CUDA_LAUNCH_BLOCKING=1 shows"};
  throw Error{Errc::config,
              std::string{"the fused kernel "}.append(name) + " cannot be started: " + text + "; " + kWithoutKernels};
}

/// The kernels that this process has compiled.
class Driver {
 public:
  using Handle = void*;

  /// Errors  `config` if there is no driver or no NVRTC.
  Driver() : library_{{"libcuda.so.1"}} {
    library_.find("cuCtxGetCurrent", current_context_);
    library_.find("cuCtxSetCurrent", set_context_);
    library_.find("cuDevicePrimaryCtxRetain", primary_context_);
    library_.find("cuDeviceGet", device_);
    library_.find("cuDeviceGetAttribute", attribute_);
    library_.find("cuModuleLoadData", load_);
    library_.find("cuModuleGetFunction", function_);
    library_.find("cuLaunchKernel", launch_);
    library_.find("cuGetErrorString", error_string_);
  }

  /// Compiles the source for the current GPU if it has not been, and starts the kernel on the current stream.
  /// Errors  `config` if it cannot be compiled or loaded, or has too large a shape; those of the GPU as LibTorch throws
  ///         its own.
  void launch(const KernelSource& source, const char* name, const LaunchShape& shape, void** arguments) {
    const c10::impl::VirtualGuardImpl gpu{c10::DeviceType::CUDA};
    const auto device = gpu.getDevice();
    const auto stream = gpu.getStream(device).native_handle();
    check(launch_(kernel(device.index(), source, name), static_cast<unsigned>(shape.grid_x),
                  static_cast<unsigned>(shape.grid_y), 1, static_cast<unsigned>(shape.threads), 1, 1, 0, stream,
                  arguments, nullptr),
          name);
  }

  /// The kernel `name` of a source, which is compiled once for each GPU.
  /// Errors  Those of launch().
  Handle kernel(c10::DeviceIndex device, const KernelSource& source, const char* name) {
    use_context_of(device);
    const std::lock_guard lock{mutex_};
    auto& module = modules_[{device, source}];
    if (module.handle == nullptr) module.handle = load(device, source);
    const auto found = module.kernels.find(name);
    if (found != module.kernels.end()) return found->second;
    Handle function = nullptr;
    check(function_(&function, module.handle, name), name);
    return module.kernels[name] = function;
  }

 private:
  struct Module {
    Handle handle = nullptr;
    std::map<std::string, Handle, std::less<>> kernels;  ///< By name.
  };
  static constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...

  void check(int result, std::string_view name) const {
    if (result == 0) return;
    const char* text = nullptr;
    error_string_(result, &text);
    throw_driver_error(result, text != nullptr ? text : std::to_string(result), name);
  }

  /// Backward passes run in threads of autograd, which may have used no function of CUDA yet.
  void use_context_of(c10::DeviceIndex device) const {
    Handle context = nullptr;
    check(current_context_(&context), "cuCtxGetCurrent");
    if (context != nullptr) return;
    check(primary_context_(&context, number_of(device)), "cuDevicePrimaryCtxRetain");
    check(set_context_(context), "cuCtxSetCurrent");
  }

  /// The driver's own number of a device.
  int number_of(c10::DeviceIndex device) const {
    int number = 0;
    check(device_(&number, device), "cuDeviceGet");
    return number;
  }

  Handle load(c10::DeviceIndex device, const KernelSource& source) const {
    const int number = number_of(device);
    int major = 0, minor = 0;
    check(attribute_(&major, kCapabilityMajor, number), "cuDeviceGetAttribute");
    check(attribute_(&minor, kCapabilityMinor, number), "cuDeviceGetAttribute");
    const auto code = nvrtc_.compile(std::string{kFloatTypes} + kHalfType + source.text(), 10 * major + minor);
    Handle module = nullptr;
    check(load_(&module, code.data()), source.name);
    return module;
  }

  SharedLibrary library_;
  Nvrtc nvrtc_;
  int (*current_context_)(Handle*) = nullptr;
  int (*set_context_)(Handle) = nullptr;
  int (*primary_context_)(Handle*, int) = nullptr;
  int (*device_)(int*, int) = nullptr;
  int (*attribute_)(int*, int, int) = nullptr;
  int (*load_)(Handle*, const void*) = nullptr;
  int (*function_)(Handle*, Handle, const char*) = nullptr;
  int (*launch_)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**,
                 void**) = nullptr;
  int (*error_string_)(int, const char**) = nullptr;
  std::mutex mutex_;
  std::map<std::pair<c10::DeviceIndex, KernelSource>, Module> modules_;
};

/// Starts kernels on the GPU. Compiled kernels are kept for the whole process, as CUDA keeps its own.
inline void launch_on_gpu(const KernelSource& source, const char* name, const LaunchShape& shape, void** arguments) {
  static Driver driver;
  driver.launch(source, name, shape, arguments);
}

}  // namespace ddpxx::detail
