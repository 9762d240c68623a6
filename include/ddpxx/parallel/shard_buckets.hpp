// ddpxx/parallel/shard_buckets.hpp — whole gradients that exist only until their bucket is full.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/buffer_pool.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/parallel/gradient_shards.hpp>
#include <ddpxx/parallel/reducer.hpp>
#include <ddpxx/parallel/stepped_segments.hpp>

namespace ddpxx {

/// Collects whole gradients bucket by bucket, and reduces each full bucket to this rank's piece, in every backward pass
/// of a step. A bucket is a segment of the arena. Buckets are reduced in index order on every rank, in whatever order
/// the gradients are computed.
class ShardBuckets {
 public:
  /// `arena` holds this rank's pieces of the gradients (Gradients::piece). If given, `stepped` provides their memory
  /// and steps them.
  ShardBuckets(Arena& arena, const Group& group, std::optional<at::ScalarType> reduction, UnusedParameters unused,
               SteppedSegments* stepped)
      : arena_{&arena},
        group_{&group},
        unused_{unused},
        steps_{stepped != nullptr},
        shards_{arena, group, nullptr, pool_, reduction, BufferSize::common, stepped},
        buckets_(arena.segments().size()),
        arrived_(arena.size(), false),
        used_(arena.size(), false) {}
  ShardBuckets(const ShardBuckets&) = delete;
  ShardBuckets& operator=(const ShardBuckets&) = delete;

  /// Called before a backward pass.
  void begin(Sync sync) {
    sync_ = sync;
    next_ = 0;
    arrived_.assign(arrived_.size(), false);
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      const auto& segment = arena_->segments()[i];
      buckets_[i] = {{}, segment.last - segment.first};
    }
  }

  /// Takes the gradient of parameter `i` from autograd; an undefined one counts as zeros.
  ///
  /// Errors  `config` for a second gradient in one pass.
  void receive(std::size_t i, const at::Tensor& gradient) {
    used_[i] = true;
    add(i, gradient);
  }

  /// Waits until this rank's pieces hold the averages. In the last pass of a step, those of parameters that got no
  /// gradient become zeros.
  ///
  /// Ranks   Collective: every rank calls it after each backward pass.
  /// Errors  `config`, naming the parameters that got no gradient in the step on this rank, with
  ///         UnusedParameters::refuse. All buckets are sent before. `peer` if a rank is lost.
  void finish() {
    std::vector<std::size_t> unused;
    if (sync_ == Sync::now && unused_ == UnusedParameters::refuse)
      for (std::size_t i = 0; i < used_.size(); ++i)
        if (!used_[i]) unused.push_back(i);
    refused_ = !unused.empty();
    for (std::size_t i = 0; i < arrived_.size(); ++i)
      if (!arrived_[i]) add(i, {});
    shards_.finish();
    if (sync_ == Sync::defer) return;
    if (refused_) {
      abandon();
      throw unused_parameters_error(*arena_, unused, group_->rank());
    }
    used_.assign(used_.size(), false);
    shards_.end_step();
  }

  /// Drops the gradients of a step that an exception has ended, and waits for the reductions that were started. The
  /// exception may be the one that finish() throws.
  void abandon() {
    shards_.abandon();
    for (std::size_t i = 0; i < buckets_.size(); ++i)
      if (buckets_[i].memory.defined()) shards_.give_back(i, std::exchange(buckets_[i].memory, {}));
    used_.assign(used_.size(), false);
    refused_ = false;
  }

 private:
  struct Bucket {
    at::Tensor memory;        ///< From its first gradient to its reduction.
    std::size_t missing = 0;  ///< Number of gradients.
  };

  void add(std::size_t i, const at::Tensor& gradient) {
    const auto& entry = (*arena_)[i];
    if (arrived_[i])
      throw Error{Errc::config, "parameter \"" + entry.name +
                                    "\" got a gradient twice in one backward pass: call backward() once for each "
                                    "micro-batch"};
    arrived_[i] = true;
    auto& bucket = buckets_[entry.segment];
    if (!bucket.memory.defined()) bucket.memory = shards_.borrow(entry.segment);
    shards_.add(bucket.memory, entry, gradient);
    --bucket.missing;
    const bool steps = steps_ && sync_ == Sync::now && !refused_;
    for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_)
      shards_.reduce(next_, std::exchange(buckets_[next_].memory, {}), steps ? AfterReduce::step : AfterReduce::keep);
  }

  Arena* arena_;
  const Group* group_;
  UnusedParameters unused_;
  bool steps_;
  BufferPool pool_;
  GradientShards shards_;
  std::vector<Bucket> buckets_;
  std::vector<bool> arrived_;  ///< Parameters that got a gradient in this backward pass.
  std::vector<bool> used_;     ///< Parameters that got a gradient in any backward pass of this step.
  std::size_t next_ = 0;       ///< The bucket that is reduced next.
  bool refused_ = false;       ///< This step will throw an error: no further segment is stepped.
  Sync sync_ = Sync::now;
};

}  // namespace ddpxx
