// ddpxx/nn/kernels/bias_gelu_kernels.hpp — the CUDA kernels of bias_gelu(): a thread for each column of some rows.
// Shape suffixes: N rows, F features, G blocks of rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <ddpxx/nn/kernels/launch.hpp>
#include <ddpxx/nn/kernels/source.hpp>

namespace ddpxx::detail {

/// The types X of the input and W of the bias, and kTanh, stand before this source.
inline constexpr const char* kBiasGeluSource = R"cuda(
constexpr float kSqrtHalf = 0.70710678118654752f, kSqrt2OverPi = 0.79788456080286536f, kCubic = 0.044715f;

// The value of GELU at u, or its derivative.
__device__ inline float gelu(float u) {
  if (kTanh) return 0.5f * u * (1 + tanhf(kSqrt2OverPi * (u + kCubic * u * u * u)));
  return 0.5f * u * (1 + erff(u * kSqrtHalf));
}
__device__ inline float slope_of_gelu(float u) {
  if (kTanh) {
    const float t = tanhf(kSqrt2OverPi * (u + kCubic * u * u * u));
    return 0.5f * (1 + t) + 0.5f * u * (1 - t * t) * kSqrt2OverPi * (1 + 3 * kCubic * u * u);
  }
  return 0.5f * (1 + erff(u * kSqrtHalf)) + u * expf(-0.5f * u * u) * 0.5f * kSqrt2OverPi;
}

extern "C" __global__ void bias_gelu_forward(const X* x, const W* bias, X* y, long long rows, int width) {
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= width) return;
  const float b = load(bias[c]);
  for (long long n = blockIdx.y; n < rows; n += gridDim.y) y[n * width + c] = store<X>(gelu(load(x[n * width + c]) + b));
}

// A thread adds up the gradient of its bias over its rows; the sum over the blocks follows.
extern "C" __global__ void bias_gelu_backward(const X* d_y, const X* x, const W* bias, X* d_x, float* d_bias,
                                              long long rows, int width) {
  const int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= width) return;
  const float b = load(bias[c]);
  float total = 0;
  for (long long n = blockIdx.y; n < rows; n += gridDim.y) {
    const float gradient = load(d_y[n * width + c]) * slope_of_gelu(load(x[n * width + c]) + b);
    d_x[n * width + c] = store<X>(gradient);
    total += gradient;
  }
  d_bias[static_cast<long long>(blockIdx.y) * width + c] = total;
}
)cuda";

/// The source for these types, without the number types.
inline std::string bias_gelu_source(at::ScalarType x, at::ScalarType weight, std::string_view approximate) {
  return type_line("X", x) + type_line("W", weight) +
         "constexpr bool kTanh = " + (approximate == "tanh" ? "true" : "false") + ";\n" + kBiasGeluSource;
}

/// A grid whose threads have a column each, and rows in `blocks` parts.
inline LaunchShape shape_for_columns(std::int64_t blocks, std::int64_t width) {
  constexpr std::int64_t kThreads = 128;
  return {.grid_x = (width + kThreads - 1) / kThreads, .grid_y = blocks, .threads = kThreads};
}

/// Enough parts of the rows to fill a GPU; more would only make more partial sums.
inline std::int64_t parts_of_rows(std::int64_t rows) {
  constexpr std::int64_t kMaxParts = 256;
  return std::min(rows, kMaxParts);
}

inline at::Tensor bias_gelu_forward_by_kernel(const at::Tensor& x_NF, const at::Tensor& bias_F,
                                              std::string_view approximate, const LaunchKernel& launch) {
  const auto x = x_NF.contiguous(), bias = bias_F.contiguous();
  const auto y = at::empty_like(x);
  const auto width = bias.size(0), rows = x.numel() / std::max<std::int64_t>(width, 1);
  if (rows > 0)
    launch_with(launch, bias_gelu_source(x.scalar_type(), bias.scalar_type(), approximate), "bias_gelu_forward",
                shape_for_columns(parts_of_rows(rows), width), x.data_ptr(), bias.data_ptr(), y.data_ptr(),
                static_cast<long long>(rows), static_cast<int>(width));
  return y;
}

struct BiasGeluGradients {
  at::Tensor x, bias;
};

inline BiasGeluGradients bias_gelu_backward_by_kernel(const at::Tensor& d_y_NF, const at::Tensor& x_NF,
                                                      const at::Tensor& bias_F, std::string_view approximate,
                                                      const LaunchKernel& launch) {
  const auto d_y = d_y_NF.contiguous(), x = x_NF.contiguous(), bias = bias_F.contiguous();
  const auto width = bias.size(0), rows = x.numel() / std::max<std::int64_t>(width, 1);
  const auto parts = parts_of_rows(rows);
  const auto d_x = at::empty_like(x), d_bias_GF = at::empty({parts, width}, x.options().dtype(at::kFloat));
  if (rows > 0)
    launch_with(launch, bias_gelu_source(x.scalar_type(), bias.scalar_type(), approximate), "bias_gelu_backward",
                shape_for_columns(parts, width), d_y.data_ptr(), x.data_ptr(), bias.data_ptr(), d_x.data_ptr(),
                d_bias_GF.data_ptr(), static_cast<long long>(rows), static_cast<int>(width));
  return {d_x, d_bias_GF.sum(0).to(bias.scalar_type())};
}

}  // namespace ddpxx::detail
