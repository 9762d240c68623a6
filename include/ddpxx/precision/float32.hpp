// ddpxx/precision/float32.hpp — everything in float32.
#pragma once

#include <variant>

#include <c10/core/Device.h>

#include <ddpxx/precision/concept.hpp>

namespace ddpxx {

/// Computes, stores and reduces in float32.
struct Float32 {
  struct Config {};

  explicit Float32(const Config&) {}
  auto forward_scope(at::DeviceType) const { return std::monostate{}; }
  NumberFormats formats() const { return {}; }
  static void check(at::Device) noexcept {}
};

static_assert(PrecisionPolicy<Float32> && explain_precision<Float32>());

}  // namespace ddpxx
