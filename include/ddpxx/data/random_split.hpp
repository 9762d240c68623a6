// ddpxx/data/random_split.hpp — cuts a dataset into random parts, equal on every rank.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/permutation.hpp>

namespace ddpxx {

/// The lengths of parts that hold these fractions of `size` samples: rounded down, then the remaining samples are added
/// to the parts in turn, one to each.
/// Errors  `config` unless the fractions lie in [0, 1] and add up to 1.
inline std::vector<std::int64_t> split_lengths(std::int64_t size, const std::vector<double>& fractions) {
  const auto sum = std::accumulate(fractions.begin(), fractions.end(), 0.0);
  if (!(std::abs(sum - 1.0) <= 1e-9))
    throw Error{Errc::config, "split: the fractions add up to " + std::to_string(sum)};
  std::vector<std::int64_t> lengths;
  for (const auto fraction : fractions) {
    if (!(fraction >= 0.0 && fraction <= 1.0))
      throw Error{Errc::config, "split: fraction " + std::to_string(fraction) + " is outside [0, 1]"};
    lengths.push_back(static_cast<std::int64_t>(std::floor(static_cast<double>(size) * fraction)));
  }
  auto left_over = size - std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  for (std::size_t part = 0; left_over > 0; ++part, --left_over) ++lengths[part % lengths.size()];
  return lengths;
}

/// The samples of each part, in random order; the lengths add up to the size of the dataset.
/// Shapes  Result: one int64 [lengths[i]] per part, views of one permutation.
/// Ranks   Local. Ranks with equal seeds get equal parts; with other seeds a rank trains on another's validation
///         samples.
/// Errors  `config` for a negative length.
/// Source  torch.utils.data.random_split(dataset, lengths, generator=torch.Generator().manual_seed(seed)).
inline std::vector<at::Tensor> random_split(const std::vector<std::int64_t>& lengths, std::uint64_t seed) {
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
