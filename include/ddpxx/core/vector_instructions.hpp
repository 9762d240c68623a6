// ddpxx/core/vector_instructions.hpp — compiles a function for the vector instructions of x86-64 processors.
#pragma once

#include <type_traits>

namespace ddpxx::detail {

#if defined(__x86_64__)

/// The number of floats that are computed together, as a value whose type says it.
template <int kLanes>
using Lanes = std::integral_constant<int, kLanes>;

// A program that is compiled for any x86-64 processor contains the functions below. `run`, and the functions that it
// calls and that are always inlined, are compiled as a part of them, with AVX2 or AVX-512.

template <class Run>
[[gnu::target("avx2,fma")]] void with_avx2(const Run& run) {
  run(Lanes<8>{});
}
template <class Run>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,fma")]] void with_avx512(const Run& run) {
  run(Lanes<16>{});
}

inline bool cpu_has_avx2() { return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0; }
inline bool cpu_has_avx512() {
  return cpu_has_avx2() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}

#endif

/// Calls `run()`, compiled for the widest vectors that the processor has. `run` is a lambda with
/// `__attribute__((always_inline))`; without it, it would be compiled for any processor.
template <class Run>
void in_widest_vectors(const Run& run) {
#if defined(__x86_64__)
  static const bool has_avx512 = cpu_has_avx512(), has_avx2 = cpu_has_avx2();
  const auto in_lanes = [&](auto) __attribute__((always_inline)) { run(); };
  if (has_avx512) return with_avx512(in_lanes);
  if (has_avx2) return with_avx2(in_lanes);
#endif
  run();
}

}  // namespace ddpxx::detail
