// ddpxx/train/deterministic_mode_inl.hpp — definitions of deterministic_mode.hpp; ddpxx/core/inline.hpp says how they
// are compiled.
#pragma once

#include <ATen/Context.h>
#include <c10/core/Device.h>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/train/deterministic_mode.hpp>

namespace ddpxx {

DDPXX_INLINE DeterministicMode::DeterministicMode(at::Device device) : before_{current()} {
  auto settings = before_;
  settings.algorithms = settings.cudnn = settings.mkldnn = true;
  settings.only_warns = settings.cudnn_benchmark = false;
  // No operation of ddpxx reads memory before it is written, and filling all new memory takes time.
  settings.fills_memory = false;
  if (device.is_cuda()) {
    settings.flash = settings.memory_efficient = settings.cudnn_attention = false;
    settings.math = true;
  }
  set(settings);
}

DDPXX_INLINE DeterministicMode::~DeterministicMode() { set(before_); }

DDPXX_INLINE void DeterministicMode::check(at::Device device) {
  if (!device.is_cuda()) return;
  const auto workspace = environment("CUBLAS_WORKSPACE_CONFIG");
  if (workspace && (*workspace == ":4096:8" || *workspace == ":16:8")) return;
  throw Error{
      Errc::config,
      "training.deterministic: cuBLAS repeats its results only with a workspace of fixed size: start the program "
      "with the environment variable CUBLAS_WORKSPACE_CONFIG=:4096:8"};
}

DDPXX_INLINE DeterministicMode::Settings DeterministicMode::current() {
  const auto& context = at::globalContext();
  return {.algorithms = context.deterministicAlgorithms(),
          .only_warns = context.deterministicAlgorithmsWarnOnly(),
          .fills_memory = context.deterministicFillUninitializedMemory(),
          .cudnn = context.deterministicCuDNN(),
          .cudnn_benchmark = context.benchmarkCuDNN(),
          .mkldnn = context.deterministicMkldnn(),
          .flash = context.userEnabledFlashSDP(),
          .memory_efficient = context.userEnabledMemEfficientSDP(),
          .cudnn_attention = context.userEnabledCuDNNSDP(),
          .math = context.userEnabledMathSDP()};
}

DDPXX_INLINE void DeterministicMode::set(const Settings& settings) {
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(settings.algorithms, settings.only_warns);
  context.setDeterministicFillUninitializedMemory(settings.fills_memory);
  context.setDeterministicCuDNN(settings.cudnn);
  context.setBenchmarkCuDNN(settings.cudnn_benchmark);
  context.setDeterministicMkldnn(settings.mkldnn);
  context.setSDPUseFlash(settings.flash);
  context.setSDPUseMemEfficient(settings.memory_efficient);
  context.setSDPUseCuDNN(settings.cudnn_attention);
  context.setSDPUseMath(settings.math);
}

}  // namespace ddpxx
