// ddpxx/nn/cpu/lanes.hpp — floats that x86-64 processors compute together, 8 with AVX2 and 16 with AVX-512.
#pragma once

#if defined(__x86_64__)

#include <cstdint>

#include <c10/util/BFloat16.h>

#include <ddpxx/core/vector_instructions.hpp>

namespace ddpxx::detail {

/// `kLanes` floats. Operators compute each lane, and a float becomes a vector that has its value in each lane. The
/// vector lies in a struct, because compilers warn of functions whose arguments are vectors that not every processor
/// has.
template <int kLanes>
struct Floats {
  using Vector [[gnu::vector_size(4 * kLanes)]] = float;
  using Bits [[gnu::vector_size(4 * kLanes)]] = std::uint32_t;
  using Integers [[gnu::vector_size(4 * kLanes)]] = std::int32_t;
  using HalfBits [[gnu::vector_size(2 * kLanes)]] = std::uint16_t;

  [[gnu::always_inline]] Floats() : all{} {}
  [[gnu::always_inline]] explicit(false) Floats(float x) : all{x - Vector{}} {}
  [[gnu::always_inline]] explicit(false) Floats(const Vector& x) : all{x} {}

  Vector all;

  [[gnu::always_inline]] friend Floats operator+(const Floats& a, const Floats& b) { return a.all + b.all; }
  [[gnu::always_inline]] friend Floats operator-(const Floats& a, const Floats& b) { return a.all - b.all; }
  [[gnu::always_inline]] friend Floats operator*(const Floats& a, const Floats& b) { return a.all * b.all; }
  [[gnu::always_inline]] friend Floats operator/(const Floats& a, const Floats& b) { return a.all / b.all; }
  // An operator with a float makes a vector of it itself: g++ 12 assembles a Floats that is made of a float in a
  // register lane by lane.
  [[gnu::always_inline]] friend Floats operator-(const Floats& a, float b) { return a.all - b; }
  [[gnu::always_inline]] friend Floats operator*(const Floats& a, float b) { return a.all * b; }
  [[gnu::always_inline]] Floats& operator+=(const Floats& other) {
    all += other.all;
    return *this;
  }
  /// a * b + c, as one expression: Clang makes one instruction of it, but not of two operators of this struct.
  [[gnu::always_inline]] friend Floats multiply_add(const Floats& a, const Floats& b, const Floats& c) {
    return a.all * b.all + c.all;
  }
  [[gnu::always_inline]] friend Floats multiply_add(const Floats& a, float b, float c) { return a.all * b + c; }
  [[gnu::always_inline]] friend Floats multiply_add(const Floats& a, float b, const Floats& c) {
    return a.all * b + c.all;
  }
  /// The larger of each pair of lanes.
  [[gnu::always_inline]] friend Floats max_of(const Floats& a, const Floats& b) {
    return a.all > b.all ? a.all : b.all;
  }
};

inline constexpr std::int32_t kLaneNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/// Calls `run(lanes)` with 16 lanes if the processor has AVX-512 and `width` is a multiple of 16, else with 8.
/// `run` is a lambda with `__attribute__((always_inline))`; without it, it would be compiled for any processor.
/// Requires  cpu_has_avx2(), and that `width` is a multiple of 8.
template <class Run>
void in_lanes_of(std::int64_t width, const Run& run) {
  static const bool has_avx512 = cpu_has_avx512();
  if (has_avx512 && width % 16 == 0)
    with_avx512(run);
  else
    with_avx2(run);
}

/// Numbers as floats.
template <int kLanes>
[[gnu::always_inline]] inline Floats<kLanes> load(const float* from) {
  Floats<kLanes> x;
  __builtin_memcpy(&x.all, from, sizeof x.all);
  return x;
}
template <int kLanes>
[[gnu::always_inline]] inline Floats<kLanes> load(const c10::BFloat16* from) {
  using F = Floats<kLanes>;
  typename F::HalfBits bits;
  __builtin_memcpy(&bits, from, sizeof bits);
  return __builtin_bit_cast(typename F::Vector, __builtin_convertvector(bits, typename F::Bits) << 16);
}

/// The 16 bits of a bfloat16 in each lane.
template <int kLanes>
struct BFloatBits {
  typename Floats<kLanes>::Bits all;
};

/// Rounds floats to the nearest bfloat16, and of two that are equally near to the one whose last bit is 0.
template <int kLanes>
[[gnu::always_inline]] inline BFloatBits<kLanes> rounded_bits(const Floats<kLanes>& x) {
  using F = Floats<kLanes>;
  const auto bits = __builtin_bit_cast(typename F::Bits, x.all);
  const typename F::Bits rounded = bits + ((bits >> 16 & 1U) + 0x7FFFU), nan = typename F::Bits{} + 0x7FC00000U;
  // Rounding would turn some NaNs into another number.
  return {((bits & 0x7FFFFFFFU) > 0x7F800000U ? nan : rounded) >> 16};
}

/// Writes floats, or the bfloat16 to which rounded_bits() rounds them.
template <int kLanes>
[[gnu::always_inline]] inline void store(float* to, const Floats<kLanes>& x) {
  __builtin_memcpy(to, &x.all, sizeof x.all);
}
template <int kLanes>
[[gnu::always_inline]] inline void store(c10::BFloat16* to, const Floats<kLanes>& x) {
  const auto packed = __builtin_convertvector(rounded_bits(x).all, typename Floats<kLanes>::HalfBits);
  __builtin_memcpy(to, &packed, sizeof packed);
}

/// Adds floats to those at `sums`.
template <int kLanes>
[[gnu::always_inline]] inline void add_to(float* sums, const Floats<kLanes>& x) {
  store(sums, load<kLanes>(sums) + x);
}

/// The first `count` lanes of x, and `other` in the lanes behind them.
template <int kLanes>
[[gnu::always_inline]] inline Floats<kLanes> first_lanes(std::int64_t count, const Floats<kLanes>& x, float other) {
  using F = Floats<kLanes>;
  typename F::Integers lane;
  __builtin_memcpy(&lane, kLaneNumbers, sizeof lane);
  const auto limit = static_cast<std::int32_t>(count);
  return lane < limit ? x.all : other - typename F::Vector{};
}

/// Joins the lanes of the lower and the upper half by `join`, and those of the result again, until one is left.
template <int kLanes, class Join>
[[gnu::always_inline]] inline float joined(const Floats<kLanes>& x, const Join& join) {
  if constexpr (kLanes == 1) {
    return x.all[0];
  } else {
    using Half = Floats<kLanes / 2>;
    typename Half::Vector halves[2];
    __builtin_memcpy(halves, &x.all, sizeof x.all);
    return joined(join(Half{halves[0]}, Half{halves[1]}), join);
  }
}
/// The sum of all lanes.
template <int kLanes>
[[gnu::always_inline]] inline float sum_of(const Floats<kLanes>& x) {
  return joined(
      x, [](const auto& a, const auto& b) __attribute__((always_inline)) { return a + b; });
}
/// The largest of all lanes.
template <int kLanes>
[[gnu::always_inline]] inline float max_of(const Floats<kLanes>& x) {
  return joined(
      x, [](const auto& a, const auto& b) __attribute__((always_inline)) { return max_of(a, b); });
}

/// exp(x) within 2 units in the last place; below -87 it is exp(-87), and above 88 it is exp(88). NaN stays NaN.
/// Source  The polynomial is that of the function expf of Cephes.
template <int kLanes>
[[gnu::always_inline]] inline Floats<kLanes> exp_of(const Floats<kLanes>& given) {
  using F = Floats<kLanes>;
  const F least = -87.0F, most = 88.0F, half = 0.5F;
  typename F::Vector x = given.all > most.all ? most.all : given.all;
  // An integer cannot hold NaN, so that n is made of a number; x stays NaN.
  const typename F::Vector number = x > least.all ? x : least.all;
  x = x < least.all ? least.all : x;
  // Conversion rounds towards zero, so that 0.5 with the sign of the number is added first.
  const typename F::Vector scaled = number * 1.44269504F, nearest = scaled + (scaled < 0.0F ? -half.all : half.all);
  const auto n = __builtin_convertvector(nearest, typename F::Integers);
  const auto whole = __builtin_convertvector(n, typename F::Vector);
  // x - n ln 2, where ln 2 is the sum of a number with few bits, whose product is exact, and the rest.
  typename F::Vector r = x - whole * 0.693359375F;
  r = r - whole * -2.12194440e-4F;
  typename F::Vector p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + (r + 1.0F);
  // 2^n is made of its exponent bits.
  return p * __builtin_bit_cast(typename F::Vector, (n + 127) << 23);
}

}  // namespace ddpxx::detail

#endif
