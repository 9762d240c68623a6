// ddpxx/nn/cpu/floats8.hpp — functions of eight floats at once, for x86-64 processors with AVX2 and FMA.
#pragma once

#if defined(__x86_64__)

#include <cstdint>
#include <immintrin.h>

#include <c10/util/BFloat16.h>

namespace ddpxx::detail {

// The attribute of these functions lets a program that is compiled for any x86-64 processor contain them. Functions
// that call them have the attribute too, or the compiler could not inline them.

/// The sum of the eight floats.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline float sum_of(__m256 x) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

/// The largest of the eight floats.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline float max_of(__m256 x) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

/// exp(x) within 2 units in the last place; below -87 it is exp(-87), and above 88 it is exp(88). NaN stays NaN.
/// Source  The polynomial is that of the function expf of Cephes.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256 exp_of(__m256 x) {
  // If one operand is NaN, these instructions return the second operand.
  x = _mm256_min_ps(_mm256_set1_ps(88.0F), _mm256_max_ps(_mm256_set1_ps(-87.0F), x));
  const __m256 n =
      _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504F)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // x - n ln 2, where ln 2 is the sum of a number with few bits, whose product is exact, and the rest.
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375F), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4F), r);
  __m256 p = _mm256_set1_ps(1.9875691500e-4F);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1F));
  p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0F)));
  // 2^n is made of its exponent bits.
  const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(p, _mm256_castsi256_ps(power));
}

/// Eight numbers as floats.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256 load8(const float* from) { return _mm256_loadu_ps(from); }
[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256 load8(const c10::BFloat16* from) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

/// Writes eight floats. bfloat16 gets the nearest number, and of two that are equally near the one whose last bit is 0.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void store8(float* to, __m256 x) { _mm256_storeu_ps(to, x); }
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void store8(c10::BFloat16* to, __m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i last_bit = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(last_bit, _mm256_set1_epi32(0x7FFF)));
  // Rounding would turn some NaNs into another number.
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i upper = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7FC00000), is_nan), 16);
  const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), packed);
}

/// Adds eight floats to those at `sums`.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void add_to(float* sums, __m256 x) {
  _mm256_storeu_ps(sums, _mm256_add_ps(_mm256_loadu_ps(sums), x));
}

}  // namespace ddpxx::detail

#endif
