// ddpxx/nn/kernels/shared_library.hpp — functions of a shared library that is looked for when the program runs.
#pragma once

#include <dlfcn.h>
#include <string>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/nn/kernels/launch.hpp>

namespace ddpxx::detail {

/// A library that stays loaded until the program ends.
class SharedLibrary {
 public:
  /// Loads the first of the names that there is.
  /// Errors  `config` with what the loader said about the last one.
  explicit SharedLibrary(const std::vector<std::string>& names) {
    for (const auto& name : names) {
      name_ = name;
      handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) return;
    }
    const char* const reason = ::dlerror();
    throw Error{Errc::config, "cannot load " + names.front() + ", which the fused kernels need on a GPU (" +
                                  (reason != nullptr ? reason : "") + "): " + kWithoutKernels};
  }

  /// Sets `function` to the function of this name.
  /// Errors  `config` if the library has no such function.
  template <class Function>
  void find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(::dlsym(handle_, name));
    if (function == nullptr)
      throw Error{Errc::config,
                  name_ + " has no function " + name + ", so it is too old for the fused kernels: " + kWithoutKernels};
  }

 private:
  std::string name_;  ///< File name of the loaded library.
  void* handle_ = nullptr;
};

}  // namespace ddpxx::detail
