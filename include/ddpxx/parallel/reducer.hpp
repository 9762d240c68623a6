// ddpxx/parallel/reducer.hpp — averages the gradients of an arena over the ranks, bucket by bucket, as they come.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/gradients.hpp>

namespace ddpxx {

/// What finish() does about parameters that got no gradient: refuse names them in an error, find averages them as
/// zeros.
enum class UnusedParameters { refuse, find };

struct ReducerOptions {
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;  ///< Small, so that communication starts early.
  std::int64_t bucket_bytes = std::int64_t{25} << 20;
  UnusedParameters unused = UnusedParameters::refuse;
};

/// Averages gradients over a group while backward is still running.
///
/// A bucket is a range of the arena's gradient memory. As soon as all gradients of a bucket are `ready`, its sum over
/// the ranks is started; buckets start in index order on every rank, whatever order the gradients come in. A gradient
/// is scaled by 1/W first and summed then, which is what PyTorch's DDP does: the order of rounding is the same.
///
///     Reducer reducer{arena, group};
///     for (i : reversed parameters) { write arena[i].gradient; reducer.ready(i); }
///     reducer.finish();                       // arena[i].gradient now holds the average over the ranks
class Reducer {
 public:
  Reducer(Arena& arena, const Group& group, const ReducerOptions& options = {})
      : arena_{&arena}, group_{&group}, options_{options}, sum_{arena}, arrived_(arena.size(), false) {
    cut_buckets();
  }

  /// Says that the gradient of parameter `i` lies in the arena, not yet scaled.
  /// Errors  `config` when it was ready already in this step.
  void ready(std::size_t i) {
    mark(i);
    sum_.take(i, scale());
    launch_full_buckets();
  }

  /// The same for a gradient that autograd hands over: copied into the arena and scaled in one pass, on top of what
  /// `defer` left there. An undefined gradient counts as zeros.
  void ready(std::size_t i, const at::Tensor& gradient) {
    mark(i);
    sum_.add(i, gradient, scale());
    launch_full_buckets();
  }

  /// Adds a gradient of a backward pass that is not the step's last; nothing is sent.
  void defer(std::size_t i, const at::Tensor& gradient) { sum_.add(i, gradient); }

  /// Waits until the averages of all buckets lie in the arena.
  /// Ranks   Collective: every rank calls it once a step.
  /// Errors  `config` naming the parameters that got no gradient on this rank, unless they are to be found. All buckets
  ///         are sent before, so that no other rank hangs in this step; where only some ranks left a parameter unused,
  ///         the others learn of it as a lost peer in the next one. `peer` if a rank is gone.
  void finish() {
    std::vector<std::size_t> unused;
    for (std::size_t i = 0; i < arena_->size(); ++i) {
      if (arrived_[i]) continue;
      if (sum_.written(i))
        ready(i);
      else
        unused.push_back(i);
    }
    for (const std::size_t i : unused) ready(i, at::Tensor{});
    for (auto& pending : pending_) pending.wait();
    pending_.clear();
    next_ = 0;
    std::fill(arrived_.begin(), arrived_.end(), false);
    for (auto& bucket : buckets_) bucket.missing = bucket.last - bucket.first;
    sum_.publish();
    if (!unused.empty() && options_.unused == UnusedParameters::refuse) throw unused_error(unused);
  }

  /// Before a backward pass: clears what the last step showed in `.grad`.
  void begin() { sum_.hide(); }

  /// The buckets as [first, last) ranges of parameter indices.
  std::vector<std::pair<std::size_t, std::size_t>> buckets() const {
    std::vector<std::pair<std::size_t, std::size_t>> ranges;
    for (const auto& bucket : buckets_) ranges.emplace_back(bucket.first, bucket.last);
    return ranges;
  }

 private:
  struct Bucket {
    std::size_t first = 0;
    std::size_t last = 0;
    std::size_t missing = 0;
    at::Tensor memory;
  };

  double scale() const { return 1.0 / group_->size(); }

  void cut_buckets() {
    if (options_.first_bucket_bytes < 1 || options_.bucket_bytes < 1)
      throw Error{Errc::config, "bucket sizes must be at least one byte"};
    bucket_of_.resize(arena_->size());
    const auto element = static_cast<std::int64_t>(arena_->values().defined() ? arena_->values().element_size() : 1);
    for (std::size_t first = 0; first < arena_->size();) {
      const auto limit = buckets_.empty() ? options_.first_bucket_bytes : options_.bucket_bytes;
      const auto begin = (*arena_)[first].offset;
      std::size_t last = first;
      std::int64_t end = begin;
      while (last < arena_->size() && (end - begin) * element < limit) {
        bucket_of_[last] = buckets_.size();
        ++last;
        end = last < arena_->size() ? (*arena_)[last].offset : arena_->gradients().numel();
      }
      buckets_.push_back({first, last, last - first, arena_->gradients().narrow(0, begin, end - begin)});
      first = last;
    }
  }

  void mark(std::size_t i) {
    if (arrived_.at(i))
      throw Error{Errc::config, "parameter \"" + (*arena_)[i].name +
                                    "\" was ready twice in one step: run one backward pass a step, or accumulate"};
    arrived_[i] = true;
    --buckets_[bucket_of_[i]].missing;
  }

  void launch_full_buckets() {
    for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_)
      pending_.push_back(start_all_reduce(buckets_[next_].memory, *group_));
  }

  Error unused_error(const std::vector<std::size_t>& unused) const {
    constexpr std::size_t kShown = 5;
    std::string names;
    for (std::size_t k = 0; k < std::min(unused.size(), kShown); ++k)
      names += (k == 0 ? "" : ", ") + (*arena_)[unused[k]].name;
    if (unused.size() > kShown) names += " and " + std::to_string(unused.size() - kShown) + " more";
    return Error{Errc::config, "no gradient came for " + names +
                                   ": use them in the loss, freeze them, or set find_unused_parameters=true"}
        .with("rank", group_->rank());
  }

  Arena* arena_;
  const Group* group_;
  ReducerOptions options_;
  GradientSum sum_;
  std::vector<bool> arrived_;
  std::vector<std::size_t> bucket_of_;
  std::vector<Bucket> buckets_;
  std::vector<Pending> pending_;
  std::size_t next_ = 0;
};

}  // namespace ddpxx
