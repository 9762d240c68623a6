// ddpxx/data/split_mix.hpp — a hash of 64-bit numbers.
#pragma once

#include <cstdint>

namespace ddpxx {

/// A hash of `value`: similar values have hashes that look random.
/// Source  Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators": one step of SplitMix64.
constexpr std::uint64_t split_mix(std::uint64_t value) noexcept {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31U);
}

static_assert(split_mix(0) == 0xE220A8397B1DCDAFU);

}  // namespace ddpxx
