// ddpxx/nn/kernels/add_norm_kernels.hpp — the CUDA kernels of add_norm() and layer_norm(): a block of threads for each
// row.
// Shape suffixes: N rows, C width, G blocks, F columns of the sums: those of the weight, then those of the bias.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/ScalarType.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/nn/kernels/column_sums_kernels.hpp>
#include <ddpxx/nn/kernels/launch.hpp>
#include <ddpxx/nn/kernels/source.hpp>

namespace ddpxx::detail {

/// The types X of x and of the sum, Y of y, N of the norm and W of weight and bias, kBias, kPack, kWidth and kThreads
/// are defined before this source. A thread has kOwn packs of a row, and keeps them in registers. Without y the norm is
/// that of x. The bias, and the sums for its gradient, are left out where kBias is 0.
inline constexpr const char* kAddNormSource = R"cuda(
constexpr int kPacks = kWidth / kPack, kOwn = (kPacks + kThreads - 1) / kThreads;

extern "C" __global__ void add_norm_forward(const Pack<X>* x, const Pack<Y>* y, const Pack<W>* weight,
                                            const Pack<W>* bias, Pack<X>* sum, Pack<N>* normed, float* mean,
                                            float* rstd, float epsilon) {
  __shared__ float scratch[32];
  const long long first = static_cast<long long>(blockIdx.x) * kPacks;
  float row[kOwn][kPack];  // of the sum, as it is rounded
  float total = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int p = i * kThreads + threadIdx.x;
    if (p >= kPacks) break;
    Pack<X> of_sum = x[first + p];
    if (y != nullptr) {
      const Pack<Y> of_y = y[first + p];
      for (int k = 0; k < kPack; ++k) of_sum.values[k] = store<X>(load(of_sum.values[k]) + load(of_y.values[k]));
      sum[first + p] = of_sum;
    }
    for (int k = 0; k < kPack; ++k) {
      row[i][k] = load(of_sum.values[k]);
      total += row[i][k];
    }
  }
  const float m = block_sum(total, scratch) / kWidth;
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    if (i * kThreads + threadIdx.x >= kPacks) break;
    for (int k = 0; k < kPack; ++k) squares += (row[i][k] - m) * (row[i][k] - m);
  }
  const float r = rsqrtf(block_sum(squares, scratch) / kWidth + epsilon);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int p = i * kThreads + threadIdx.x;
    if (p >= kPacks) break;
    const Pack<W> of_weight = weight[p];
    for (int k = 0; k < kPack; ++k) row[i][k] = (row[i][k] - m) * r * load(of_weight.values[k]);
    if (kBias) {
      const Pack<W> of_bias = bias[p];
      for (int k = 0; k < kPack; ++k) row[i][k] += load(of_bias.values[k]);
    }
    Pack<N> of_normed;
    for (int k = 0; k < kPack; ++k) of_normed.values[k] = store<N>(row[i][k]);
    normed[first + p] = of_normed;
  }
  if (threadIdx.x == 0) {
    mean[blockIdx.x] = m;
    rstd[blockIdx.x] = r;
  }
}

// A block adds up the gradients of weight and bias over its rows; the sum over the blocks follows. A thread always has
// the same columns, so that only the sums over a row need the other threads.
extern "C" __global__ void add_norm_backward(const Pack<X>* d_sum, const Pack<N>* d_normed, const Pack<X>* sum,
                                             const float* mean, const float* rstd, const Pack<W>* weight, Pack<X>* d_x,
                                             Pack<Y>* d_y, Pack<float>* d_affine, long long rows) {
  __shared__ float scratch[64];
  float factor[kOwn][kPack];
  Pack<float> of_weight[kOwn], of_bias[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int p = i * kThreads + threadIdx.x;
    if (p >= kPacks) break;
    const Pack<W> own = weight[p];
    for (int k = 0; k < kPack; ++k) {
      factor[i][k] = load(own.values[k]);
      of_weight[i].values[k] = of_bias[i].values[k] = 0;
    }
  }
  for (long long n = blockIdx.x; n < rows; n += gridDim.x) {
    const long long first = n * kPacks;
    const float m = mean[n], r = rstd[n];
    Pack<X> more[kOwn];  // read early, so that the sums over the row do not wait for it
    float value[kOwn][kPack], gradient[kOwn][kPack], sums[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int p = i * kThreads + threadIdx.x;
      if (p >= kPacks) break;
      const Pack<X> of_sum = sum[first + p];
      const Pack<N> of_normed = d_normed[first + p];
      if (d_sum != nullptr) more[i] = d_sum[first + p];
      for (int k = 0; k < kPack; ++k) {
        const float incoming = load(of_normed.values[k]);
        value[i][k] = (load(of_sum.values[k]) - m) * r;
        of_weight[i].values[k] += incoming * value[i][k];
        if (kBias) of_bias[i].values[k] += incoming;
        gradient[i][k] = incoming * factor[i][k];
        sums[0] += gradient[i][k];
        sums[1] += gradient[i][k] * value[i][k];
      }
    }
    block_sums(sums, scratch);
    const float plain = sums[0] / kWidth, scaled = sums[1] / kWidth;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int p = i * kThreads + threadIdx.x;
      if (p >= kPacks) break;
      Pack<X> of_x;
      Pack<Y> of_y;
      for (int k = 0; k < kPack; ++k) {
        float result = r * (gradient[i][k] - plain - value[i][k] * scaled);
        if (d_sum != nullptr) result += load(more[i].values[k]);
        of_x.values[k] = store<X>(result);
        of_y.values[k] = store<Y>(result);
      }
      d_x[first + p] = of_x;
      if (d_y != nullptr) d_y[first + p] = of_y;
    }
  }
  Pack<float>* const own = d_affine + static_cast<long long>(blockIdx.x) * (1 + kBias) * kPacks;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int p = i * kThreads + threadIdx.x;
    if (p >= kPacks) break;
    own[p] = of_weight[i];
    if (kBias) own[kPacks + p] = of_bias[i];
  }
}
)cuda";

struct AddNormForm {
  at::ScalarType x, y, normed, weight;
  bool has_bias;
};

/// The threads that a row has.
/// Errors  `config` for a width whose rows do not fit into the registers of a block.
inline std::int64_t threads_for_row(std::int64_t width) {
  constexpr std::int64_t kMaxWidth = 4096, kWarp = 32, kMaxThreads = 256;
  if (width > kMaxWidth)
    throw Error{Errc::config, "a layer norm of width " + std::to_string(width) + " is wider than " +
                                  std::to_string(kMaxWidth) +
                                  ", the most that its fused kernels have: set model.fused=false"};
  return std::min((width / pack_for(width) + kWarp - 1) / kWarp * kWarp, kMaxThreads);
}

/// The source for this form and this width.
inline KernelSource add_norm_source(const AddNormForm& form, std::int64_t width) {
  return {.name = "add_norm",
          .kernels = kAddNormSource,
          .pack = pack_for(width),
          .types = {{{"X", form.x}, {"Y", form.y}, {"N", form.normed}, {"W", form.weight}}},
          .numbers = {{{"kBias", form.has_bias ? 1 : 0}, {"kWidth", width}, {"kThreads", threads_for_row(width)}}}};
}

struct AddNormParts {
  at::Tensor sum, normed, mean, rstd;
};
struct AddNormGradients {
  at::Tensor x, y, weight, bias;
};

/// Without y, which is undefined then, the sum is x itself. The bias may be undefined too. A weight and a bias of
/// different types are read in the wider one.
inline AddNormParts add_norm_forward_by_kernel(const at::Tensor& x_NC, const at::Tensor& y_NC,
                                               const at::Tensor& weight_C, const at::Tensor& bias_C, double epsilon,
                                               at::ScalarType normed_type, const LaunchKernel& launch) {
  const auto type = c10::promoteTypes(weight_C.scalar_type(), (bias_C.defined() ? bias_C : weight_C).scalar_type());
  const auto x = in_packs(x_NC), y = y_NC.defined() ? in_packs(y_NC) : at::Tensor{},
             weight = in_packs(weight_C.to(type));
  const auto bias = bias_C.defined() ? in_packs(bias_C.to(type)) : at::Tensor{};
  const auto width = x.size(-1), rows = x.numel() / std::max<std::int64_t>(width, 1);
  const auto in_float = x.options().dtype(at::kFloat);
  const AddNormParts parts{y.defined() ? at::empty_like(x) : x, at::empty_like(x, x.options().dtype(normed_type)),
                           at::empty({rows}, in_float), at::empty({rows}, in_float)};
  if (rows == 0) return parts;
  const auto y_type = (y.defined() ? y : x).scalar_type();
  const auto data_of = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.data_ptr() : nullptr; };
  const auto source = add_norm_source({x.scalar_type(), y_type, normed_type, type, bias.defined()}, width);
  launch_with(launch, source, "add_norm_forward", {.grid_x = rows, .threads = threads_for_row(width)}, x.data_ptr(),
              data_of(y), weight.data_ptr(), data_of(bias), parts.sum.data_ptr(), parts.normed.data_ptr(),
              parts.mean.data_ptr(), parts.rstd.data_ptr(), static_cast<float>(epsilon));
  return parts;
}

/// `bias_type` is that of the bias, or Undefined where there is none, and then no gradient either.
inline AddNormGradients add_norm_backward_by_kernel(const at::Tensor& d_sum, const at::Tensor& d_normed,
                                                    const at::Tensor& sum, const at::Tensor& mean,
                                                    const at::Tensor& rstd, const at::Tensor& weight_C,
                                                    at::ScalarType bias_type, at::ScalarType y_type,
                                                    const LaunchKernel& launch) {
  constexpr std::int64_t kMaxBlocks = 1024;  // enough to fill a GPU; more would only make more partial sums
  const auto of_sum = d_sum.defined() ? in_packs(d_sum.to(sum.scalar_type())) : at::Tensor{};
  const auto of_normed = in_packs(d_normed), weight = in_packs(weight_C);
  const auto width = sum.size(-1), rows = sum.numel() / std::max<std::int64_t>(width, 1);
  const auto blocks = std::min(rows, kMaxBlocks);
  const auto in_float = sum.options().dtype(at::kFloat);
  const bool types_differ = y_type != sum.scalar_type();
  const auto d_x = at::empty_like(sum);
  const auto d_y = types_differ ? at::empty_like(sum, sum.options().dtype(y_type)) : d_x;
  const bool has_bias = bias_type != at::ScalarType::Undefined;
  const auto d_affine_GF = at::empty({blocks, has_bias ? 2 * width : width}, in_float);
  if (rows > 0) {
    const auto source =
        add_norm_source({sum.scalar_type(), y_type, d_normed.scalar_type(), weight.scalar_type(), has_bias}, width);
    void* const of_sum_data = of_sum.defined() ? of_sum.data_ptr() : nullptr;
    void* const d_y_data = types_differ ? d_y.data_ptr() : nullptr;
    launch_with(launch, source, "add_norm_backward", {.grid_x = blocks, .threads = threads_for_row(width)}, of_sum_data,
                of_normed.data_ptr(), sum.data_ptr(), mean.data_ptr(), rstd.data_ptr(), weight.data_ptr(),
                d_x.data_ptr(), d_y_data, d_affine_GF.data_ptr(), static_cast<long long>(rows));
  }
  const bool one_type = !has_bias || bias_type == weight.scalar_type();
  const auto d_affine = sum_blocks_by_kernel(d_affine_GF, one_type ? weight.scalar_type() : at::kFloat, launch);
  const auto d_bias = has_bias ? d_affine.narrow(0, width, width).to(bias_type) : at::Tensor{};
  return {d_x, d_y, d_affine.narrow(0, 0, width).to(weight.scalar_type()), d_bias};
}

}  // namespace ddpxx::detail
