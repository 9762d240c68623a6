// ddpxx/comm/rank_order_reduce.hpp — adds up the values of all ranks in the order of the ranks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <ddpxx/comm/reduce.hpp>
#include <ddpxx/core/vector_instructions.hpp>

namespace ddpxx::detail {

/// The type in which values of type T are reduced: float for the 16-bit floating-point types.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>, float, T>;

template <Reduce kReduce, class T>
T reduced(T left, T right) noexcept {
  if constexpr (kReduce == Reduce::min) return std::min(left, right);
  if constexpr (kReduce == Reduce::max) return std::max(left, right);
  if constexpr (std::is_same_v<T, bool>) return left || right;
  return static_cast<T>(left + right);
}

inline constexpr std::ptrdiff_t kBlock = 256;  ///< Number of elements that are reduced at a time.

/// Reduces `count` elements, at most kBlock. With a constant `count` the compiler uses vector instructions.
template <Reduce kReduce, class In, class Out>
[[gnu::always_inline]] inline void reduce_block(std::span<const void* const> sources, std::ptrdiff_t begin, Out* output,
                                                std::ptrdiff_t count) {
  using Sum = Accumulator<In>;
  Sum sums[kBlock];
  const auto* first = static_cast<const In*>(sources[0]) + begin;
  if (sources.size() == 1) {
    for (std::ptrdiff_t i = 0; i < count; ++i) sums[i] = static_cast<Sum>(first[i]);
  } else {
    const auto* second = static_cast<const In*>(sources[1]) + begin;
    for (std::ptrdiff_t i = 0; i < count; ++i)
      sums[i] = reduced<kReduce>(static_cast<Sum>(first[i]), static_cast<Sum>(second[i]));
    for (const auto* source : sources.subspan(2)) {
      const auto* values = static_cast<const In*>(source) + begin;
      for (std::ptrdiff_t i = 0; i < count; ++i) sums[i] = reduced<kReduce>(sums[i], static_cast<Sum>(values[i]));
    }
  }
  for (std::ptrdiff_t i = 0; i < count; ++i) output[begin + i] = static_cast<Out>(sums[i]);
}

template <Reduce kReduce, class In, class Out>
[[gnu::always_inline]] inline void reduce_blocks(std::span<const void* const> sources, Out* output,
                                                 std::ptrdiff_t count) {
  std::ptrdiff_t begin = 0;
  for (; begin + kBlock <= count; begin += kBlock) reduce_block<kReduce, In>(sources, begin, output, kBlock);
  reduce_block<kReduce, In>(sources, begin, output, count - begin);
}

/// The width of vector instructions may differ between hosts. Results have equal bits all the same: the order of
/// additions does not change. A fused multiply-add could round differently, but the only multiplication here is that of
/// the conversion to float16, by a power of two, which is exact.
template <Reduce kReduce, class In, class Out>
void reduce_as(std::span<const void* const> sources, void* output, std::ptrdiff_t count) {
  in_widest_vectors([&]() __attribute__((always_inline)) {
    reduce_blocks<kReduce, In>(sources, static_cast<Out*>(output), count);
  });
}

template <class In, class Out>
void reduce_as(Reduce reduce, std::span<const void* const> sources, void* output, std::ptrdiff_t count) {
  switch (reduce) {
    case Reduce::sum:
      return reduce_as<Reduce::sum, In, Out>(sources, output, count);
    case Reduce::min:
      return reduce_as<Reduce::min, In, Out>(sources, output, count);
    case Reduce::max:
      return reduce_as<Reduce::max, In, Out>(sources, output, count);
  }
}

/// Element types of the values that are reduced, and of the result.
struct ReduceTypes {
  c10::ScalarType input;
  c10::ScalarType output;
};

/// Reduces `count` elements of each source into `output`; see reduce_function().
using ReduceFunction = void (*)(Reduce reduce, std::span<const void* const> sources, void* output,
                                std::ptrdiff_t count);

template <class In>
ReduceFunction reduce_function_of(c10::ScalarType output) {
  switch (output) {
    case c10::ScalarType::Float:
      return reduce_as<In, float>;
    case c10::ScalarType::BFloat16:
      return reduce_as<In, c10::BFloat16>;
    case c10::ScalarType::Half:
      return reduce_as<In, c10::Half>;
    default:
      return nullptr;
  }
}

/// Returns a function that reduces all `sources` element by element into `output`, in the order of the sources:
/// ((s0 + s1) + s2) + ... The bits of the result depend on nothing else, except that the sum of several NaNs is any of
/// them. Values of 16 bits are added up as float and rounded once. `output` may be one of the sources. Boolean values
/// are added by "or". Returns null if there is no such function: the types may differ only among float, bfloat16 and
/// float16.
inline ReduceFunction reduce_function(const ReduceTypes& types) {
  using c10::ScalarType;
  if (types.input == ScalarType::Float) return reduce_function_of<float>(types.output);
  if (types.input == ScalarType::BFloat16) return reduce_function_of<c10::BFloat16>(types.output);
  if (types.input == ScalarType::Half) return reduce_function_of<c10::Half>(types.output);
  if (types.input != types.output) return nullptr;
  switch (types.input) {
    case ScalarType::Double:
      return reduce_as<double, double>;
    case ScalarType::Long:
      return reduce_as<std::int64_t, std::int64_t>;
    case ScalarType::Int:
      return reduce_as<std::int32_t, std::int32_t>;
    case ScalarType::Short:
      return reduce_as<std::int16_t, std::int16_t>;
    case ScalarType::Char:
      return reduce_as<std::int8_t, std::int8_t>;
    case ScalarType::Byte:
      return reduce_as<std::uint8_t, std::uint8_t>;
    case ScalarType::Bool:
      return reduce_as<bool, bool>;
    default:
      return nullptr;
  }
}

}  // namespace ddpxx::detail
