// ddpxx/data/random_split_inl.hpp — definitions of random_split.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/permutation.hpp>
#include <ddpxx/data/random_split.hpp>

namespace ddpxx {

DDPXX_INLINE std::vector<std::int64_t> split_lengths(std::int64_t size, const std::vector<double>& fractions) {
  const auto sum = std::accumulate(fractions.begin(), fractions.end(), 0.0);
  if (!(std::abs(sum - 1.0) <= 1e-9))
    throw Error{Errc::config, "split: the fractions add up to " + std::to_string(sum)};
  std::vector<std::int64_t> lengths;
  auto left_over = size;
  for (const auto fraction : fractions) {
    if (!(fraction >= 0.0 && fraction <= 1.0))
      throw Error{Errc::config, "split: fraction " + std::to_string(fraction) + " is outside [0, 1]"};
    // Fractions whose sum is rounded above 1 must not make more samples than there are.
    const auto length =
        std::min(left_over, static_cast<std::int64_t>(std::floor(static_cast<double>(size) * fraction)));
    lengths.push_back(length);
    left_over -= length;
  }
  for (std::size_t part = 0; left_over > 0; ++part, --left_over) ++lengths[part % lengths.size()];
  return lengths;
}

DDPXX_INLINE std::vector<at::Tensor> random_split(const std::vector<std::int64_t>& lengths, std::uint64_t seed) {
  for (const auto length : lengths)
    if (length < 0) throw Error{Errc::config, "split: a part of " + std::to_string(length) + " samples"};
  const auto order = permutation(std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}), seed);
  std::vector<at::Tensor> parts;
  for (std::int64_t begin = 0; const auto length : lengths) {
    parts.push_back(order.narrow(0, begin, length));
    begin += length;
  }
  return parts;
}

}  // namespace ddpxx
