// ddpxx/nn/kernels/nvrtc.hpp — compiles CUDA sources with NVRTC, NVIDIA's compiler in the form of a library.
#pragma once

#include <array>
#include <cstddef>
#include <dlfcn.h>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/nn/kernels/launch.hpp>
#include <ddpxx/nn/kernels/shared_library.hpp>

namespace ddpxx::detail {

/// NVRTC of the system, or of the wheels that LibTorch's wheel comes with. It needs no GPU.
class Nvrtc {
 public:
  /// Errors  `config` if there is none.
  Nvrtc() : library_{candidates()} {
    library_.find("nvrtcCreateProgram", create_);
    library_.find("nvrtcDestroyProgram", destroy_);
    library_.find("nvrtcCompileProgram", compile_);
    library_.find("nvrtcGetProgramLogSize", log_size_);
    library_.find("nvrtcGetProgramLog", log_);
    library_.find("nvrtcGetCUBINSize", cubin_size_);
    library_.find("nvrtcGetCUBIN", cubin_);
  }

  /// The machine code of a source for GPUs of a compute capability, such as 90.
  /// Errors  `config` with the compiler's words.
  std::string compile(const std::string& source, int capability) const {
    Program program{*this, source};
    const auto architecture = "--gpu-architecture=sm_" + std::to_string(capability);
    const std::array options{architecture.c_str(), "--std=c++17"};
    if (compile_(program.handle, static_cast<int>(options.size()), options.data()) != 0)
      throw Error{Errc::config, "NVRTC cannot compile a fused kernel for " + architecture + ": " +
                                    text(program, log_size_, log_) + "; " + kWithoutKernels};
    return text(program, cubin_size_, cubin_);
  }

 private:
  using Handle = void*;
  using SizeOf = int(Handle, std::size_t*);
  using TextOf = int(Handle, char*);

  struct Program {
    Program(const Nvrtc& nvrtc, const std::string& source) : destroy{nvrtc.destroy_} {
      if (nvrtc.create_(&handle, source.c_str(), "ddpxx.cu", 0, nullptr, nullptr) != 0)
        throw Error{Errc::config, std::string{"NVRTC refuses a program: "} + kWithoutKernels};
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;
    ~Program() { destroy(&handle); }

    Handle handle = nullptr;
    int (*destroy)(Handle*);
  };

  static std::string text(const Program& program, SizeOf* size_of, TextOf* text_of) {
    std::size_t size = 0;
    size_of(program.handle, &size);
    std::string text(size, '\0');
    text_of(program.handle, text.data());
    return text;
  }

  /// The names under which the loader may know the library, then its places beside LibTorch's libraries.
  static std::vector<std::string> candidates() {
    const std::vector<std::string> names{"libnvrtc.so.13", "libnvrtc.so.12"};
    auto all = names;
    ::Dl_info torch{};
    // Any function of LibTorch shows where its libraries lie.
    if (::dladdr(reinterpret_cast<void*>(&c10::GetExceptionString), &torch) == 0) return all;
    const auto folder = std::filesystem::path{torch.dli_fname}.parent_path();
    for (const char* place : {"", "../../nvidia/cu13/lib", "../../nvidia/cuda_nvrtc/lib"})
      for (const auto& name : names) {
        std::error_code ignored;
        if (std::filesystem::exists(folder / place / name, ignored)) all.push_back((folder / place / name).string());
      }
    return all;
  }

  SharedLibrary library_;
  int (*create_)(Handle*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*destroy_)(Handle*) = nullptr;
  int (*compile_)(Handle, int, const char* const*) = nullptr;
  SizeOf* log_size_ = nullptr;
  TextOf* log_ = nullptr;
  SizeOf* cubin_size_ = nullptr;
  TextOf* cubin_ = nullptr;
};

}  // namespace ddpxx::detail
