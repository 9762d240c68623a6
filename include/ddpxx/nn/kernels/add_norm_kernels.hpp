// ddpxx/nn/kernels/add_norm_kernels.hpp — the CUDA kernels of add_norm(): a block of threads for each row.
// Shape suffixes: N rows, C width, G blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/nn/kernels/launch.hpp>
#include <ddpxx/nn/kernels/source.hpp>

namespace ddpxx::detail {

/// The types X of x and of the sum, Y of y, N of the norm and W of weight and bias stand before this source.
inline constexpr const char* kAddNormSource = R"cuda(
extern "C" __global__ void add_norm_forward(const X* x, const Y* y, const W* weight, const W* bias, X* sum, N* normed,
                                            float* mean, float* rstd, int width, float epsilon) {
  extern __shared__ float memory[];
  float* const row = memory;  // the row of the sum, as it is rounded
  float* const scratch = memory + width;
  const long long first = static_cast<long long>(blockIdx.x) * width;
  float total = 0;
  for (int c = threadIdx.x; c < width; c += blockDim.x) {
    const X value = store<X>(load(x[first + c]) + load(y[first + c]));
    sum[first + c] = value;
    row[c] = load(value);
    total += row[c];
  }
  const float m = block_sum(total, scratch) / width;
  float squares = 0;
  for (int c = threadIdx.x; c < width; c += blockDim.x) squares += (row[c] - m) * (row[c] - m);
  const float r = rsqrtf(block_sum(squares, scratch) / width + epsilon);
  for (int c = threadIdx.x; c < width; c += blockDim.x)
    normed[first + c] = store<N>((row[c] - m) * r * load(weight[c]) + load(bias[c]));
  if (threadIdx.x == 0) {
    mean[blockIdx.x] = m;
    rstd[blockIdx.x] = r;
  }
}

// A block adds up the gradients of weight and bias over its rows; the sum over the blocks follows. A thread always has
// the same columns, so that only the sums over a row need the other threads.
extern "C" __global__ void add_norm_backward(const X* d_sum, const N* d_normed, const X* sum, const float* mean,
                                             const float* rstd, const W* weight, X* d_x, Y* d_y, float* d_weight,
                                             float* d_bias, long long rows, int width) {
  extern __shared__ float memory[];
  float* const of_weight = memory;
  float* const of_bias = memory + width;
  float* const scratch = memory + 2 * width;
  for (int c = threadIdx.x; c < width; c += blockDim.x) of_weight[c] = of_bias[c] = 0;
  for (long long n = blockIdx.x; n < rows; n += gridDim.x) {
    const long long first = n * width;
    const float m = mean[n], r = rstd[n];
    float plain = 0, scaled = 0;
    for (int c = threadIdx.x; c < width; c += blockDim.x) {
      const float value = (load(sum[first + c]) - m) * r, gradient = load(d_normed[first + c]);
      of_weight[c] += gradient * value;
      of_bias[c] += gradient;
      plain += gradient * load(weight[c]);
      scaled += gradient * load(weight[c]) * value;
    }
    plain = block_sum(plain, scratch) / width;
    scaled = block_sum(scaled, scratch) / width;
    for (int c = threadIdx.x; c < width; c += blockDim.x) {
      const float value = (load(sum[first + c]) - m) * r;
      float gradient = r * (load(d_normed[first + c]) * load(weight[c]) - plain - value * scaled);
      if (d_sum != nullptr) gradient += load(d_sum[first + c]);
      d_x[first + c] = store<X>(gradient);
      if (d_y != nullptr) d_y[first + c] = store<Y>(gradient);
    }
  }
  const long long own = static_cast<long long>(blockIdx.x) * width;
  for (int c = threadIdx.x; c < width; c += blockDim.x) {
    d_weight[own + c] = of_weight[c];
    d_bias[own + c] = of_bias[c];
  }
}
)cuda";

struct AddNormTypes {
  at::ScalarType x, y, normed, weight;
};

/// The source for these types, without the number types.
inline std::string add_norm_source(const AddNormTypes& types) {
  return type_line("X", types.x) + type_line("Y", types.y) + type_line("N", types.normed) +
         type_line("W", types.weight) + kAddNormSource;
}

struct AddNormParts {
  at::Tensor sum, normed, mean, rstd;
};
struct AddNormGradients {
  at::Tensor x, y, weight, bias;
};

/// Errors  `config` for a width whose rows do not fit into the shared memory of a block.
inline LaunchShape shape_for_rows(std::int64_t blocks, std::int64_t width, std::int64_t rows_in_memory) {
  constexpr std::int64_t kMaxWidth = 4096, kWarp = 32, kMaxThreads = 256, kScratch = 32;
  if (width > kMaxWidth)
    throw Error{Errc::config, "add_norm: a width of " + std::to_string(width) + " is above " +
                                  std::to_string(kMaxWidth) +
                                  ", the most that its kernels have: set model.fused=false"};
  return {.grid_x = blocks,
          .threads = std::min((width + kWarp - 1) / kWarp * kWarp, kMaxThreads),
          .shared_bytes = (rows_in_memory * width + kScratch) * static_cast<std::int64_t>(sizeof(float))};
}

inline AddNormParts add_norm_forward_by_kernel(const at::Tensor& x_NC, const at::Tensor& y_NC,
                                               const at::Tensor& weight_C, const at::Tensor& bias_C, double epsilon,
                                               at::ScalarType normed_type, const LaunchKernel& launch) {
  const auto x = x_NC.contiguous(), y = y_NC.contiguous(), weight = weight_C.contiguous();
  const auto bias = bias_C.to(weight.scalar_type()).contiguous();
  const auto width = x.size(-1), rows = x.numel() / std::max<std::int64_t>(width, 1);
  const auto in_float = x.options().dtype(at::kFloat);
  const AddNormParts parts{at::empty_like(x), at::empty_like(x, x.options().dtype(normed_type)),
                           at::empty({rows}, in_float), at::empty({rows}, in_float)};
  if (rows == 0) return parts;
  const auto source = add_norm_source({x.scalar_type(), y.scalar_type(), normed_type, weight.scalar_type()});
  launch_with(launch, source, "add_norm_forward", shape_for_rows(rows, width, 1), x.data_ptr(), y.data_ptr(),
              weight.data_ptr(), bias.data_ptr(), parts.sum.data_ptr(), parts.normed.data_ptr(), parts.mean.data_ptr(),
              parts.rstd.data_ptr(), static_cast<int>(width), static_cast<float>(epsilon));
  return parts;
}

inline AddNormGradients add_norm_backward_by_kernel(const at::Tensor& d_sum, const at::Tensor& d_normed,
                                                    const at::Tensor& sum, const at::Tensor& mean,
                                                    const at::Tensor& rstd, const at::Tensor& weight_C,
                                                    at::ScalarType y_type, const LaunchKernel& launch) {
  constexpr std::int64_t kMaxBlocks = 512;  // enough to fill a GPU; more would only make more partial sums
  const auto of_sum = d_sum.defined() ? d_sum.to(sum.scalar_type()).contiguous() : at::Tensor{};
  const auto of_normed = d_normed.contiguous(), weight = weight_C.contiguous();
  const auto width = sum.size(-1), rows = sum.numel() / std::max<std::int64_t>(width, 1);
  const auto blocks = std::min(rows, kMaxBlocks);
  const auto in_float = sum.options().dtype(at::kFloat);
  const bool types_differ = y_type != sum.scalar_type();
  const auto d_x = at::empty_like(sum);
  const auto d_y = types_differ ? at::empty_like(sum, sum.options().dtype(y_type)) : d_x;
  const auto d_weight_GC = at::empty({blocks, width}, in_float), d_bias_GC = at::empty({blocks, width}, in_float);
  if (rows > 0) {
    const auto source = add_norm_source({sum.scalar_type(), y_type, d_normed.scalar_type(), weight.scalar_type()});
    void* const of_sum_data = of_sum.defined() ? of_sum.data_ptr() : nullptr;
    void* const d_y_data = types_differ ? d_y.data_ptr() : nullptr;
    launch_with(launch, source, "add_norm_backward", shape_for_rows(blocks, width, 2), of_sum_data,
                of_normed.data_ptr(), sum.data_ptr(), mean.data_ptr(), rstd.data_ptr(), weight.data_ptr(),
                d_x.data_ptr(), d_y_data, d_weight_GC.data_ptr(), d_bias_GC.data_ptr(), static_cast<long long>(rows),
                static_cast<int>(width));
  }
  return {d_x, d_y, d_weight_GC.sum(0).to(weight.scalar_type()), d_bias_GC.sum(0)};
}

}  // namespace ddpxx::detail
