// ddpxx/train/deterministic_mode.hpp — makes LibTorch choose operations whose results repeat bit for bit.
#pragma once

#include <c10/core/Device.h>

#include <ddpxx/core/inline.hpp>

namespace ddpxx {

/// While it lives, LibTorch uses deterministic algorithms, and throws where an operation has none. On a GPU attention
/// is computed by matrix products and a softmax, because the backward passes of fused attention add in any order.
/// LibTorch keeps these as settings of the process. The destructor restores those from before, so two objects must be
/// destroyed in reverse order.
class DeterministicMode {
 public:
  explicit DeterministicMode(at::Device device);
  DeterministicMode(const DeterministicMode&) = delete;
  DeterministicMode& operator=(const DeterministicMode&) = delete;
  ~DeterministicMode();

  /// Errors  `config` for a GPU without a value of CUBLAS_WORKSPACE_CONFIG for which cuBLAS repeats its results.
  static void check(at::Device device);

 private:
  struct Settings {
    bool algorithms, only_warns, fills_memory, cudnn, cudnn_benchmark, mkldnn;
    bool flash, memory_efficient, cudnn_attention, math;
  };
  static Settings current();
  static void set(const Settings& settings);

  Settings before_;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/deterministic_mode_inl.hpp>
#endif
