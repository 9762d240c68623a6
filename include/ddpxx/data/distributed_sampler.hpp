// ddpxx/data/distributed_sampler.hpp — chooses the samples of an epoch for this rank, and their order.
// The order is a pure function of (seed, epoch, position), so a snapshot needs no other state of the sampler.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include <range/v3/iterator/basic_iterator.hpp>
#include <range/v3/range/concepts.hpp>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/batch_context.hpp>
#include <ddpxx/data/permutation.hpp>

namespace ddpxx {

namespace detail {

/// A position in an epoch's order, which moves by whole rounds; beyond the end the order starts again. range-v3 makes
/// an iterator of it: views of 64-bit numbers would have a difference type that the standard library does not accept.
struct DealCursor {
  const std::int64_t* stored = nullptr;           ///< The epoch's order in memory, or null.
  const ComputedPermutation* computed = nullptr;  ///< Or its computed order; if both are null, samples are in order.
  std::int64_t size = 0;
  std::int64_t place = 0;
  std::int64_t world_size = 1;

  std::int64_t read() const noexcept {
    if (stored != nullptr) return stored[place % size];
    return computed != nullptr ? (*computed)[place % size] : place % size;
  }
  bool equal(const DealCursor& other) const noexcept { return place == other.place; }
  void next() noexcept { place += world_size; }
  void prev() noexcept { place -= world_size; }
  void advance(std::int64_t rounds) noexcept { place += rounds * world_size; }
  std::int64_t distance_to(const DealCursor& other) const noexcept { return (other.place - place) / world_size; }
};

}  // namespace detail

struct DistributedSamplerConfig {
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = false;
  std::int64_t max_stored = std::int64_t{1} << 24;  ///< Maximum number of samples whose order is held in memory.
};

/// Distributes the samples of an epoch over the ranks in turn: `for (std::int64_t index : sampler)`. All ranks get
/// equal numbers of samples: the last round is completed with the epoch's first samples, or dropped.
/// Ranks   Local; size, seed, shuffle, drop_last, epoch and position must be equal on all ranks.
/// Errors  `config` for a rank outside [0, world_size), a negative size or a negative position.
/// Source  torch.utils.data.DistributedSampler, bit for bit for datasets of up to `max_stored` samples (2^24, with 128
///         MiB for their order). The order of a larger dataset is computed for each sample and takes no memory.
class DistributedSampler {
 public:
  using Config = DistributedSamplerConfig;

  DistributedSampler(std::int64_t size, const Config& config) : size_{size}, config_{config} {
    if (size < 0) throw Error{Errc::config, "sampler: a dataset of " + std::to_string(size) + " samples"};
    if (config.rank < 0 || config.rank >= config.world_size)
      throw Error{Errc::config, "sampler: rank " + std::to_string(config.rank) + " is outside [0, " +
                                    std::to_string(config.world_size) + ")"};
  }

  /// Starts an epoch, with an order of its own, at its first sample.
  void set_epoch(std::int64_t epoch) {
    if (epoch != epoch_) {
      stored_.reset();
      computed_.reset();
    }
    epoch_ = epoch;
    seek(0);
  }

  /// Continues after the first `position` samples of the epoch, counted over all ranks. The rest is distributed over
  /// the current ranks, whose number may have changed.
  void seek(std::int64_t position) {
    if (position < 0) throw Error{Errc::config, "sampler: position " + std::to_string(position) + " is negative"};
    position_ = position;
  }

  /// The number of samples that are left for this rank.
  std::int64_t size() const noexcept {
    const auto left = std::max<std::int64_t>(size_ - position_, 0);
    const auto rounds = left / config_.world_size;
    const bool fill_up = !config_.drop_last && left % config_.world_size != 0;
    return rounds + (fill_up ? 1 : 0);
  }

  /// The name of the method that orders samples, which a run records: resuming with another method would repeat some
  /// samples and skip others.
  std::string order_name() const {
    if (!config_.shuffle) return "unshuffled";
    return is_stored() ? "torch.randperm" : "computed, 8 rounds";
  }

  /// The first sample of this rank. The first call in an epoch makes the permutation. Iterators are valid until
  /// `set_epoch`, or until the sampler is destroyed.
  auto begin() {
    const auto seed = config_.seed + static_cast<std::uint64_t>(epoch_);
    if (config_.shuffle && is_stored() && !stored_.defined()) stored_ = permutation(size_, seed);
    if (config_.shuffle && !is_stored() && !computed_)
      computed_.emplace(size_, BatchContext{config_.seed, epoch_}.seed_of(size_));
    return at_round(0);
  }
  auto end() { return at_round(size()); }

 private:
  using Iterator = ranges::basic_iterator<detail::DealCursor>;

  bool is_stored() const noexcept { return size_ <= config_.max_stored; }

  Iterator at_round(std::int64_t round) const {
    return Iterator{detail::DealCursor{.stored = stored_.defined() ? stored_.const_data_ptr<std::int64_t>() : nullptr,
                                       .computed = computed_ ? &*computed_ : nullptr,
                                       .size = size_,
                                       .place = position_ + config_.rank + round * config_.world_size,
                                       .world_size = config_.world_size}};
  }

  std::int64_t size_;
  Config config_;
  std::int64_t epoch_ = 0;
  std::int64_t position_ = 0;
  at::Tensor stored_;  ///< int64 [size]; undefined before the first begin(), and without shuffle.
  std::optional<ComputedPermutation> computed_;  ///< None before the first begin(), and without shuffle.
};

static_assert(ranges::random_access_range<DistributedSampler> && ranges::sized_range<DistributedSampler>);

}  // namespace ddpxx
