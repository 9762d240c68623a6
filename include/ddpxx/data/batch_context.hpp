// ddpxx/data/batch_context.hpp — seed and epoch of a batch, for datasets that augment at random.
#pragma once

#include <cstdint>

#include <ATen/CPUGeneratorImpl.h>

#include <ddpxx/data/split_mix.hpp>

namespace ddpxx {

/// The run's seed and the epoch of a batch. Random numbers that a dataset draws from
/// `generator(index)` do not depend on the number of ranks and workers, nor on the step at which a run was stopped and
/// resumed.
struct BatchContext {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;

  /// A number for one sample: a pure function of seed, epoch and index.
  constexpr std::uint64_t seed_of(std::int64_t index) const noexcept {
    return split_mix(split_mix(split_mix(seed) + static_cast<std::uint64_t>(epoch)) +
                     static_cast<std::uint64_t>(index));
  }

  /// A generator of random numbers for one sample.
  at::Generator generator(std::int64_t index) const { return at::detail::createCPUGenerator(seed_of(index)); }
};

}  // namespace ddpxx
