// ddpxx/nn/kernels/cross_entropy_kernel.hpp — the CUDA kernel of chunked_cross_entropy(): a block of threads for each
// row of logits.
// Shape suffixes: K rows, V vocabulary.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <ddpxx/nn/kernels/launch.hpp>
#include <ddpxx/nn/kernels/source.hpp>

namespace ddpxx::detail {

/// The type X of the logits and kPack are defined before this source.
inline constexpr const char* kCrossEntropySource = R"cuda(
// The loss of each row. The gradient of the logits, softmax minus one-hot target, replaces them where it is wanted; it
// is 0 in a row whose target is -1.
extern "C" __global__ void cross_entropy(Pack<X>* logits, const long long* targets, float* losses, int packs,
                                         int with_gradient) {
  __shared__ float scratch[32];
  Pack<X>* const row = logits + static_cast<long long>(blockIdx.x) * packs;
  const long long target = targets[blockIdx.x];
  if (target < -1 || target >= static_cast<long long>(packs) * kPack) __trap();
  const float of_target = target == -1 ? 0 : load(row[target / kPack].values[target % kPack]);

  const float lowest = -__uint_as_float(0x7f800000u);  // minus infinity
  float top = lowest, sum = 0;  // over the packs of this thread, relative to the largest logit so far
  for (int p = threadIdx.x; p < packs; p += blockDim.x) {
    const Pack<X> own = row[p];
    float values[kPack], largest = lowest;
    for (int k = 0; k < kPack; ++k) {
      values[k] = load(own.values[k]);
      largest = fmaxf(largest, values[k]);
    }
    if (largest > top) {
      sum *= exponential(top - largest);
      top = largest;
    }
    // Logits of minus infinity are left out: while top is minus infinity too, the difference would be NaN. NaN stays in.
    for (int k = 0; k < kPack; ++k) sum += values[k] == lowest ? 0 : exponential(values[k] - top);
  }
  const float most = block_max(top, scratch);
  const float total = block_sum(top == lowest ? sum : sum * exponential(top - most), scratch);
  if (threadIdx.x == 0) losses[blockIdx.x] = target == -1 ? 0 : logf(total) + (most - of_target);
  if (!with_gradient) return;

  const float scale = target == -1 ? 0 : 1 / total;
  for (int p = threadIdx.x; p < packs; p += blockDim.x) {
    Pack<X> own = row[p];
    for (int k = 0; k < kPack; ++k) {
      float gradient = target == -1 ? 0 : exponential(load(own.values[k]) - most) * scale;
      if (p * static_cast<long long>(kPack) + k == target) gradient -= 1;
      own.values[k] = store<X>(gradient);
    }
    row[p] = own;
  }
}
)cuda";

/// The source for this type and vocabulary.
inline KernelSource cross_entropy_source(at::ScalarType logits, std::int64_t vocabulary) {
  return {.name = "cross_entropy",
          .kernels = kCrossEntropySource,
          .pack = pack_for(vocabulary),
          .types = {{{"X", logits}}},
          .numbers = {}};
}

/// Writes the loss of each row to `losses_K`, and with `gradients` the gradient of the logits in their place.
/// Shapes  `logits_KV` [K, V] contiguous, `targets_K` int64 [K], `losses_K` float32 [K].
inline void cross_entropy_by_kernel(const at::Tensor& logits_KV, const at::Tensor& targets_K,
                                    const at::Tensor& losses_K, bool gradients, const LaunchKernel& launch) {
  constexpr std::int64_t kThreads = 512;
  const auto rows = logits_KV.size(0), vocabulary = logits_KV.size(1);
  if (rows == 0) return;
  launch_with(launch, cross_entropy_source(logits_KV.scalar_type(), vocabulary), "cross_entropy",
              {.grid_x = rows, .threads = kThreads}, logits_KV.data_ptr(), targets_K.data_ptr(), losses_K.data_ptr(),
              static_cast<int>(vocabulary / pack_for(vocabulary)), static_cast<int>(gradients));
}

}  // namespace ddpxx::detail
