// ddpxx/nn/kernels/bias_gelu_kernels.hpp — the CUDA kernels of bias_gelu(): a thread for some columns of some rows.
// Shape suffixes: N rows, F features, G blocks of rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <ddpxx/nn/kernels/column_sums_kernels.hpp>
#include <ddpxx/nn/kernels/launch.hpp>
#include <ddpxx/nn/kernels/source.hpp>

namespace ddpxx::detail {

/// The types X of the input and W of the bias, kTanh and kPack are defined before this source.
inline constexpr const char* kBiasGeluSource = R"cuda(
constexpr float kSqrtHalf = 0.70710678118654752f, kSqrt8OverPi = 1.59576912160573072f, kCubic = 0.044715f;

// GELU's approximation u (1 + tanh(z)) / 2 is u times the logistic function of 2z, which takes one exponential.
__device__ inline float logistic(float u) {
  return __fdividef(1.0f, 1 + exponential(-kSqrt8OverPi * (u + kCubic * u * u * u)));
}
// The value of GELU at u, or its derivative.
__device__ inline float gelu(float u) {
  if (kTanh) return u * logistic(u);
  return 0.5f * u * (1 + erff(u * kSqrtHalf));
}
__device__ inline float slope_of_gelu(float u) {
  if (kTanh) {
    const float part = logistic(u);
    return part + u * part * (1 - part) * kSqrt8OverPi * (1 + 3 * kCubic * u * u);
  }
  return 0.5f * (1 + erff(u * kSqrtHalf)) + u * exponential(-0.5f * u * u) * 0.25f * kSqrt8OverPi;
}

extern "C" __global__ void bias_gelu_forward(const Pack<X>* __restrict__ x, const Pack<W>* __restrict__ bias,
                                             Pack<X>* __restrict__ y, long long rows, int packs) {
  const int p = blockIdx.x * blockDim.x + threadIdx.x;
  if (p >= packs) return;
  const Pack<W> b = bias[p];
  for (long long n = blockIdx.y; n < rows; n += gridDim.y) {
    const Pack<X> in = x[n * packs + p];
    Pack<X> out;
    for (int k = 0; k < kPack; ++k) out.values[k] = store<X>(gelu(load(in.values[k]) + load(b.values[k])));
    y[n * packs + p] = out;
  }
}

// A thread adds up the gradient of its biases over its rows; the sum over the blocks follows.
extern "C" __global__ void bias_gelu_backward(const Pack<X>* __restrict__ d_y, const Pack<X>* __restrict__ x,
                                              const Pack<W>* __restrict__ bias, Pack<X>* __restrict__ d_x,
                                              Pack<float>* __restrict__ d_bias, long long rows, int packs) {
  const int p = blockIdx.x * blockDim.x + threadIdx.x;
  if (p >= packs) return;
  const Pack<W> b = bias[p];
  Pack<float> total;
  for (int k = 0; k < kPack; ++k) total.values[k] = 0;
  for (long long n = blockIdx.y; n < rows; n += gridDim.y) {
    const Pack<X> incoming = d_y[n * packs + p], in = x[n * packs + p];
    Pack<X> out;
    for (int k = 0; k < kPack; ++k) {
      const float gradient = load(incoming.values[k]) * slope_of_gelu(load(in.values[k]) + load(b.values[k]));
      out.values[k] = store<X>(gradient);
      total.values[k] += gradient;
    }
    d_x[n * packs + p] = out;
  }
  d_bias[static_cast<long long>(blockIdx.y) * packs + p] = total;
}
)cuda";

/// The source for these types and this width.
inline KernelSource bias_gelu_source(at::ScalarType x, at::ScalarType weight, std::string_view approximate,
                                     std::int64_t width) {
  return {.name = "bias_gelu",
          .kernels = kBiasGeluSource,
          .pack = pack_for(width),
          .types = {{{"X", x}, {"W", weight}}},
          .numbers = {{{"kTanh", approximate == "tanh" ? 1 : 0}}}};
}

inline at::Tensor bias_gelu_forward_by_kernel(const at::Tensor& x_NF, const at::Tensor& bias_F,
                                              std::string_view approximate, const LaunchKernel& launch) {
  const auto x = in_packs(x_NF), bias = in_packs(bias_F);
  const auto y = at::empty_like(x);
  constexpr std::int64_t kMaxParts = 4096;  // a thread keeps its biases for some rows
  const auto width = bias.size(0), rows = x.numel() / std::max<std::int64_t>(width, 1);
  const auto packs = width / pack_for(width);
  if (rows > 0)
    launch_with(launch, bias_gelu_source(x.scalar_type(), bias.scalar_type(), approximate, width), "bias_gelu_forward",
                shape_for_columns(std::min(rows, kMaxParts), packs), x.data_ptr(), bias.data_ptr(), y.data_ptr(),
                static_cast<long long>(rows), static_cast<int>(packs));
  return y;
}

struct BiasGeluGradients {
  at::Tensor x, bias;
};

inline BiasGeluGradients bias_gelu_backward_by_kernel(const at::Tensor& d_y_NF, const at::Tensor& x_NF,
                                                      const at::Tensor& bias_F, std::string_view approximate,
                                                      const LaunchKernel& launch) {
  const auto d_y = in_packs(d_y_NF), x = in_packs(x_NF), bias = in_packs(bias_F);
  const auto width = bias.size(0), rows = x.numel() / std::max<std::int64_t>(width, 1);
  const auto packs = width / pack_for(width), blocks = blocks_of_rows(rows);
  const auto d_x = at::empty_like(x), d_bias_GF = at::empty({blocks, width}, x.options().dtype(at::kFloat));
  if (rows > 0)
    launch_with(launch, bias_gelu_source(x.scalar_type(), bias.scalar_type(), approximate, width), "bias_gelu_backward",
                shape_for_columns(blocks, packs), d_y.data_ptr(), x.data_ptr(), bias.data_ptr(), d_x.data_ptr(),
                d_bias_GF.data_ptr(), static_cast<long long>(rows), static_cast<int>(packs));
  return {d_x, sum_blocks_by_kernel(d_bias_GF, bias.scalar_type(), launch)};
}

}  // namespace ddpxx::detail
