// ddpxx/nn/kernels/source.hpp — text that the CUDA sources of all kernels begin with: number types and a sum over a
// block. The sources are strings, which NVRTC compiles on the machine with the GPU. They include nothing, because the
// headers of CUDA may not be there.
#pragma once

#include <string>

#include <c10/core/ScalarType.h>

#include <ddpxx/core/error.hpp>

namespace ddpxx::detail {

/// float and bfloat16, which the kernels read and write as float.
inline constexpr const char* kFloatTypes = R"cuda(
struct bf16 { unsigned short bits; };
typedef float f32;

__device__ inline float load(f32 value) { return value; }
__device__ inline float load(bf16 value) { return __uint_as_float(static_cast<unsigned>(value.bits) << 16); }

template <class T> __device__ inline T store(float value);
template <> __device__ inline f32 store<f32>(float value) { return value; }
template <> __device__ inline bf16 store<bf16>(float value) {
  const unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fc0};  // NaN
  return {static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};  // to the nearest, ties to even
}

// The sum of `value` over all threads of the block, in each of them. `scratch` has 32 numbers.
__device__ inline float block_sum(float value, float* scratch) {
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) total += scratch[warp];
  __syncthreads();  // scratch may be written again now
  return total;
}
)cuda";

/// float16, converted by instructions of the GPU.
inline constexpr const char* kHalfType = R"cuda(
struct f16 { unsigned short bits; };

__device__ inline float load(f16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
template <> __device__ inline f16 store<f16>(float value) {
  f16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
}
)cuda";

/// The name of a number type in the sources.
/// Errors  `config` for a type that the kernels do not have.
inline std::string type_in_kernel(at::ScalarType type) {
  if (type == at::kFloat) return "f32";
  if (type == at::kBFloat16) return "bf16";
  if (type == at::kHalf) return "f16";
  throw Error{Errc::config, std::string{"the fused kernels compute in float32, bfloat16 and float16, not in "} +
                                c10::toString(type) + ": set model.fused=false"};
}

inline std::string type_line(const char* name, at::ScalarType type) {
  return std::string{"typedef "} + type_in_kernel(type) + ' ' + name + ";\n";
}

}  // namespace ddpxx::detail
