// ddpxx/precision/tf32.hpp — float32, with matrix products in TF32 on GPUs.
#pragma once

#include <string>
#include <variant>

#include <ATen/Context.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/precision/concept.hpp>
#include <ddpxx/precision/gpu_generation.hpp>

namespace ddpxx {

/// Stores and reduces in float32; a GPU multiplies matrices in TF32, which uses 10 of the 23 bits of a mantissa.
/// LibTorch keeps this as a setting of the process, and the backward pass needs it too. The constructor sets it, and
/// the destructor restores the setting from before, so two objects must be destroyed in reverse order.
/// Errors  `config` if the program has set the precision of float32 through both of LibTorch's interfaces.
class TF32 {
 public:
  struct Config {};

  explicit TF32(const Config&) : before_{current()} { at::globalContext().setFloat32MatmulPrecision("high"); }
  TF32(const TF32&) = delete;
  TF32& operator=(const TF32&) = delete;
  ~TF32() { at::globalContext().setFloat32MatmulPrecision(before_); }

  auto forward_scope(at::DeviceType) const { return std::monostate{}; }
  NumberFormats formats() const { return {}; }

  /// Errors  `config` for a device without TF32: it would multiply in float32, and be no faster.
  static void check(at::Device device) {
    if (device.type() != at::kCUDA)
      throw Error{Errc::config, "precision TF32 is for GPUs, and this run computes on " + device.str() +
                                    "; choose float32, which gives the same numbers there"};
    require_ampere("TF32", "float32", device);
  }

 private:
  // LibTorch's CUDA kernels read the setting through the older of its two interfaces, which throws if the program has
  // used the newer one.
  static std::string current() try {
    switch (at::globalContext().float32MatmulPrecision()) {
      case at::Float32MatmulPrecision::HIGHEST:
        return "highest";
      case at::Float32MatmulPrecision::HIGH:
        return "high";
      case at::Float32MatmulPrecision::MEDIUM:
        return "medium";
    }
    return "highest";
  } catch (const c10::Error&) {
    throw Error{Errc::config,
                "precision TF32: this program has set the precision of float32 through setFloat32Precision as well; "
                "set it through setFloat32MatmulPrecision only, or not at all"};
  }

  std::string before_;
};

static_assert(PrecisionPolicy<TF32> && explain_precision<TF32>());

}  // namespace ddpxx
