// ddpxx/precision/autocast.hpp — forward passes whose expensive operations run in bfloat16 or float16.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/layers/autocast_state.hpp>
#include <ddpxx/precision/concept.hpp>
#include <ddpxx/precision/gpu_generation.hpp>
#include <ddpxx/precision/loss_scaler.hpp>
#include <ddpxx/precision/loss_scaler_config.hpp>

namespace ddpxx {

/// Autocast to bfloat16. Parameters, gradients and optimizer state stay float32. In a forward pass LibTorch casts the
/// inputs of matrix products to bfloat16, and the inputs of operations that need more digits to float32; the backward
/// pass uses the types of the forward pass. Which operations are cast differs between CPU and GPU. bfloat16 has the
/// range of float32, so the loss is not scaled.
/// Source  torch.autocast(dtype=torch.bfloat16); Kalamkar et al. 2019, arXiv:1905.12322.
struct AutocastBF16 {
  struct Config {};

  explicit AutocastBF16(const Config&) {}
  /// A scope in which this thread autocasts. Its end clears the cache of cast weights, since the optimizer changes
  /// them.
  AutocastScope forward_scope(at::DeviceType device) const {
    return AutocastScope{{.device = device, .enabled = true, .type = at::kBFloat16, .cache = true}};
  }
  NumberFormats formats() const { return {}; }
  /// Errors  `config` for a GPU without units for bfloat16.
  static void check(at::Device device) { require_ampere("bfloat16", "float16 autocast, or float32", device); }
};

/// Autocast to float16, whose smallest positive number is 6e-8: the loss is scaled, and a step whose gradients overflow
/// is skipped.
/// Source  torch.autocast(dtype=torch.float16) with torch.amp.GradScaler.
class AutocastFP16 {
 public:
  static constexpr bool kScalesLoss = true;

  struct Config {
    LossScalerConfig scaler = {};

    static constexpr auto describe() {
      return fields(field<&Config::scaler>("Scaling of the loss, so that small gradients do not become 0 in float16"));
    }
  };

  explicit AutocastFP16(const Config& config) : config_{config} {}
  AutocastScope forward_scope(at::DeviceType device) const {
    return AutocastScope{{.device = device, .enabled = true, .type = at::kHalf, .cache = true}};
  }
  NumberFormats formats() const { return {}; }
  LossScaler make_scaler(at::Device device) const { return {config_.scaler, device}; }
  /// Every device that LibTorch trains on has float16.
  static void check(at::Device) noexcept {}

 private:
  Config config_;
};

static_assert(PrecisionPolicy<AutocastBF16> && explain_precision<AutocastBF16>() && !scales_loss<AutocastBF16>);
static_assert(PrecisionPolicy<AutocastFP16> && explain_precision<AutocastFP16>() && scales_loss<AutocastFP16>);

}  // namespace ddpxx
