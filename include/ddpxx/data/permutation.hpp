// ddpxx/data/permutation.hpp — a random order of n samples: stored, equal to PyTorch's, or computed.
#pragma once

#include <bit>
#include <cstdint>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randperm.h>

#include <ddpxx/data/split_mix.hpp>

namespace ddpxx {

/// The numbers from 0 to size - 1 in a random order, a pure function of size and seed.
/// Shapes  Result: int64 [size].
/// Source  torch.randperm(size, generator=torch.Generator().manual_seed(seed)).
inline at::Tensor permutation(std::int64_t size, std::uint64_t seed) {
  return at::randperm(size, at::detail::createCPUGenerator(seed), at::kLong, at::kStrided, at::kCPU, false);
}

/// The numbers from 0 to size - 1 in a random order that takes no memory: operator[] computes each number. The order is
/// a pure function of size and seed, on every machine, but not the order of torch.randperm.
/// Source  Luby and Rackoff 1988 (a Feistel network permutes 2^b numbers); Black and Rogaway 2002 (cycle walking:
///         numbers beyond size - 1 are permuted again until one is below).
class ComputedPermutation {
 public:
  constexpr ComputedPermutation(std::int64_t size, std::uint64_t seed)
      : size_{static_cast<std::uint64_t>(size)}, seed_{split_mix(seed)} {
    const auto bits = static_cast<unsigned>(std::bit_width(size_ < 4 ? std::uint64_t{3} : size_ - 1));
    low_bits_ = bits / 2;
    low_mask_ = (std::uint64_t{1} << low_bits_) - 1;
    high_mask_ = (std::uint64_t{1} << (bits - low_bits_)) - 1;
  }

  constexpr std::int64_t operator[](std::int64_t place) const noexcept {
    auto number = static_cast<std::uint64_t>(place);
    do number = permuted(number);
    while (number >= size_);
    return static_cast<std::int64_t>(number);
  }

 private:
  static constexpr std::uint64_t kRounds = 8;

  /// Changes the low and the high half of the number in turn, each by a hash of the other half.
  constexpr std::uint64_t permuted(std::uint64_t number) const noexcept {
    auto low = number & low_mask_, high = number >> low_bits_;
    for (std::uint64_t round = 0; round < kRounds; round += 2) {
      low = (low ^ hash(high, round)) & low_mask_;
      high = (high ^ hash(low, round + 1)) & high_mask_;
    }
    return (high << low_bits_) | low;
  }
  constexpr std::uint64_t hash(std::uint64_t half, std::uint64_t round) const noexcept {
    return split_mix(half + 0x9E3779B97F4A7C15U * round + seed_) >> 16U;
  }

  std::uint64_t size_;
  std::uint64_t seed_;
  unsigned low_bits_ = 0;
  std::uint64_t low_mask_ = 0;
  std::uint64_t high_mask_ = 0;
};

}  // namespace ddpxx
