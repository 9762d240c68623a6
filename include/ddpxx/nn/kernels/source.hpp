// ddpxx/nn/kernels/source.hpp — text that the CUDA sources of all kernels begin with: number types, and sums and maxima
// over a block. The sources are strings, which NVRTC compiles on the machine with the GPU. They include nothing,
// because the headers of CUDA may not be there.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

#include <ATen/core/Tensor.h>
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
template <> __device__ inline bf16 store<bf16>(float value) {  // to the nearest, ties to even
#if __CUDA_ARCH__ >= 800
  bf16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
#else  // GPUs without that instruction, and CPUs
  const unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fff};  // NaN, with the bits of that instruction
  return {static_cast<unsigned short>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
#endif
}

// e to the power of `value`, which is 0 where it is less than 2^-126. Numbers below that would take more instructions.
__device__ inline float exponential(float value) {
#if __CUDA_ARCH__
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value * 1.44269504088896341f));
  return result;
#else
  return expf(value);
#endif
}

// The sums of `values` over all threads of the block, in each of them. `scratch` has 32 places for each value.
template <int Count> __device__ inline void block_sums(float (&values)[Count], float* scratch) {
  for (int i = 0; i < Count; ++i) {
    for (int mask = 16; mask > 0; mask /= 2) values[i] += __shfl_xor_sync(0xffffffffu, values[i], mask);
    if (threadIdx.x % 32 == 0) scratch[32 * i + threadIdx.x / 32] = values[i];
  }
  __syncthreads();
  for (int i = 0; i < Count; ++i) {
    values[i] = 0;
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) values[i] += scratch[32 * i + warp];
  }
  __syncthreads();  // scratch may be written again now
}
__device__ inline float block_sum(float value, float* scratch) {
  float values[1] = {value};
  block_sums(values, scratch);
  return values[0];
}

// The largest `value` of all threads of the block, in each of them. `scratch` has 32 places.
__device__ inline float block_max(float value, float* scratch) {
  for (int mask = 16; mask > 0; mask /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, mask));
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) value = fmaxf(value, scratch[warp]);
  __syncthreads();
  return value;
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

/// Numbers that a thread reads and writes at once, by instructions for 16 bytes where it has as many.
inline constexpr const char* kPackType = R"cuda(
template <class T> struct alignas(sizeof(T) * kPack < 16 ? sizeof(T) * kPack : 16) Pack {
  T values[kPack];
};
)cuda";

/// The numbers in a pack of rows of this width: only packs that fill a row begin at addresses that suit them.
inline std::int64_t pack_for(std::int64_t width) {
  constexpr std::int64_t kLargest = 8;
  return width % kLargest == 0 ? kLargest : 1;
}

/// The tensor, or a contiguous copy of it whose first element is aligned to 16 bytes, as packs are.
inline at::Tensor in_packs(const at::Tensor& tensor) {
  constexpr std::uintptr_t kAlignment = 16;
  const auto dense = tensor.contiguous();
  return reinterpret_cast<std::uintptr_t>(dense.data_ptr()) % kAlignment == 0 ? dense : dense.clone();
}

/// A CUDA source, by what tells it from others. Its text is made only where it is compiled: a launch of a kernel that
/// has been compiled compares names of some letters and numbers.
struct KernelSource {
  struct Type {
    std::string_view name;  ///< Empty if the source has fewer types.
    at::ScalarType type = at::ScalarType::Undefined;
    auto operator<=>(const Type&) const = default;
  };
  struct Number {
    std::string_view name;  ///< Empty if the source has fewer numbers.
    std::int64_t value = 0;
    auto operator<=>(const Number&) const = default;
  };

  std::string_view name;
  const char* kernels = "";
  std::int64_t pack = 1;          ///< Defined as kPack before the kernels.
  std::array<Type, 4> types;      ///< Defined before the kernels by their names in the source.
  std::array<Number, 3> numbers;  ///< Defined before the kernels, too.

  /// Without the number types.
  /// Errors  `config` for a type that the kernels do not have.
  std::string text() const {
    std::string text = "constexpr int kPack = " + std::to_string(pack) + ";\n" + kPackType;
    for (const auto& type : types)
      if (!type.name.empty()) (text += "typedef " + type_in_kernel(type.type) + ' ').append(type.name) += ";\n";
    for (const auto& number : numbers)
      if (!number.name.empty())
        (text += "constexpr int ").append(number.name) += " = " + std::to_string(number.value) + ";\n";
    return text + kernels;
  }

  friend bool operator<(const KernelSource& a, const KernelSource& b) {
    const auto facts = [](const KernelSource& source) {
      return std::tie(source.name, source.kernels, source.pack, source.types, source.numbers);
    };
    return facts(a) < facts(b);
  }
};

}  // namespace ddpxx::detail
