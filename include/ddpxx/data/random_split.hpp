// ddpxx/data/random_split.hpp — cuts a dataset into random parts, equal on every rank.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/core/inline.hpp>

namespace ddpxx {

/// The lengths of parts that hold these fractions of `size` samples: rounded down, then the remaining samples are added
/// to the parts in turn, one to each.
/// Errors  `config` unless the fractions lie in [0, 1] and add up to 1.
std::vector<std::int64_t> split_lengths(std::int64_t size, const std::vector<double>& fractions);

/// The samples of each part, in random order; the lengths add up to the size of the dataset.
/// Shapes  Result: one int64 [lengths[i]] per part, views of one permutation.
/// Ranks   Local. Ranks with equal seeds get equal parts; with other seeds a rank trains on another's validation
///         samples.
/// Errors  `config` for a negative length.
/// Source  torch.utils.data.random_split(dataset, lengths, generator=torch.Generator().manual_seed(seed)).
std::vector<at::Tensor> random_split(const std::vector<std::int64_t>& lengths, std::uint64_t seed);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/data/random_split_inl.hpp>
#endif
