// ddpxx/train/step_batches.hpp — the batches of one optimizer step after the other, epoch after epoch.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/trace_span.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/data/concept.hpp>
#include <ddpxx/data/cursor.hpp>
#include <ddpxx/data/distributed_sampler.hpp>
#include <ddpxx/data/loader.hpp>
#include <ddpxx/data/make_loader.hpp>

namespace ddpxx {

/// This rank's batches, as many a step as gradients are accumulated; the last step of an epoch may have fewer. Every
/// rank gets batches of the same number and sizes. The cursor says where the next step begins; a run that starts there
/// again sees the same batches.
/// Errors  `data` for a dataset that is smaller than the world, and for a loader that ends too early; `config` for a
///         batch larger than what a rank has in an epoch, for more batches a step than an epoch has, and for what a
///         loader refuses.
template <MapDataset Dataset>
class StepBatches {
 public:
  struct Options {
    std::int64_t batch_size = 8;
    std::int64_t num_workers = 0;
    std::int64_t accumulation_steps = 1;
    std::uint64_t seed = 0;
    bool shuffle = true;
  };

  /// Without `make_loader` the batches are made by `Loader`.
  StepBatches(std::shared_ptr<const Dataset> dataset, const Group& group, const Options& options,
              MakeLoader<Dataset> make_loader = {})
      : dataset_{std::move(dataset)},
        options_{options},
        make_loader_{make_loader ? std::move(make_loader) : ddpxx::make_loader<Dataset>},
        world_size_{group.size()},
        sampler_{dataset_->size(),
                 {.rank = group.rank(), .world_size = group.size(), .seed = options.seed, .shuffle = options.shuffle}} {
    if (dataset_->size() < world_size_)
      throw Error{Errc::data, "the training set has " + std::to_string(dataset_->size()) + " samples for " +
                                  std::to_string(world_size_) + " ranks: use fewer ranks or more data"};
    check_sizes();
  }

  const Cursor& cursor() const noexcept { return cursor_; }

  /// Goes on from a cursor that a run of any world size and batch size left.
  /// Errors  `storage` for a cursor behind the end of an epoch, which no run leaves.
  void seek(const Cursor& cursor) {
    if (cursor.position > 0 && cursor.position >= dataset_->size())
      throw Error{Errc::storage, "the snapshot stands at sample " + std::to_string(cursor.position) +
                                     " of an epoch, and the training set has " + std::to_string(dataset_->size()) +
                                     ": it is damaged, or of other data; choose another snapshot or save_dir"};
    cursor_ = cursor;
    next_batch_ = {};
  }

  /// Returns this rank's batches of the next step, and moves the cursor. Where a batch cannot be made, the cursor
  /// stays, and the next call tries the same batches again.
  std::vector<BatchOf<Dataset>> next() {
    const TraceSpan span{"data"};
    const auto asked = Clock::now();
    try {
      if (!next_batch_) start_loader();
      std::vector<BatchOf<Dataset>> batches;
      std::int64_t samples = 0;
      while (std::ssize(batches) < options_.accumulation_steps && samples < left_) {
        auto batch = next_batch_();
        if (!batch) throw Error{Errc::data, ended_early(left_ - samples)};
        samples += std::min(options_.batch_size, left_ - samples);
        batches.push_back(std::move(*batch));
      }
      left_ -= samples;
      cursor_.position += samples * world_size_;
      if (left_ == 0) seek({cursor_.epoch + 1, 0});
      waited_ = Clock::now() - asked;
      return batches;
    } catch (...) {
      next_batch_ = {};
      throw;
    }
  }

  /// Milliseconds that the last next() took, and 0 until there was another one.
  double take_waited_ms() { return std::exchange(waited_, {}).count(); }

  const Dataset& dataset() const noexcept { return *dataset_; }
  std::int64_t num_samples() const { return dataset_->size(); }
  /// How the order of the samples is made, as a run records it.
  std::string order_name() const { return sampler_.order_name(); }

  std::int64_t steps_per_epoch() const { return steps_for(dataset_->size()); }

  /// The number of steps from the cursor until `epochs` epochs are complete.
  std::int64_t steps_until(std::int64_t epochs) const {
    if (cursor_.epoch >= epochs) return 0;
    return steps_for(dataset_->size() - cursor_.position) + (epochs - cursor_.epoch - 1) * steps_per_epoch();
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// One step never takes more than an epoch: a larger number is probably a mistake, and would end in a lack of memory,
  /// or in steps that last for hours.
  void check_sizes() const {
    check_loader_options(loader_options());
    const auto share = (dataset_->size() + world_size_ - 1) / world_size_;
    const auto samples = std::to_string(dataset_->size()) + " training samples on " + std::to_string(world_size_) +
                         (world_size_ == 1 ? " rank" : " ranks");
    if (options_.batch_size > share)
      throw Error{Errc::config, "batch_size=" + std::to_string(options_.batch_size) +
                                    " is more than a rank has in an " + "epoch: " + samples + " allow at most " +
                                    std::to_string(share)};
    const auto batches = (share + options_.batch_size - 1) / options_.batch_size;
    if (options_.accumulation_steps < 1 || options_.accumulation_steps > batches)
      throw Error{Errc::config, "accumulation_steps=" + std::to_string(options_.accumulation_steps) +
                                    " is outside [1, " + std::to_string(batches) + "]: " + samples + " make " +
                                    std::to_string(batches) +
                                    " batches of batch_size=" + std::to_string(options_.batch_size) + " an epoch"};
  }

  LoaderOptions loader_options() const {
    return {.batch_size = options_.batch_size,
            .num_workers = options_.num_workers,
            .context = {.seed = options_.seed, .epoch = cursor_.epoch}};
  }

  std::int64_t steps_for(std::int64_t samples) const {
    const auto up = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
    return up(up(up(samples, world_size_), options_.batch_size), options_.accumulation_steps);
  }

  void start_loader() {
    sampler_.set_epoch(cursor_.epoch);
    sampler_.seek(cursor_.position);
    left_ = sampler_.size();
    next_batch_ = make_loader_(dataset_, sampler_, loader_options());
  }

  std::string ended_early(std::int64_t missing) const {
    return "the loader ended " + std::to_string(missing) + " samples before the end of epoch " +
           std::to_string(cursor_.epoch) + ": it must return batches of " + std::to_string(options_.batch_size) +
           " samples until the sampler has no more";
  }

  std::shared_ptr<const Dataset> dataset_;
  Options options_;
  MakeLoader<Dataset> make_loader_;
  std::int64_t world_size_;
  DistributedSampler sampler_;
  Cursor cursor_;
  std::int64_t left_ = 0;  ///< Samples of this rank until the end of the epoch.
  std::chrono::duration<double, std::milli> waited_{0};
  NextBatch<Dataset> next_batch_;  ///< The loader of this epoch; empty before it is made.
};

}  // namespace ddpxx
