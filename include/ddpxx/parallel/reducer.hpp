// ddpxx/parallel/reducer.hpp — averages the gradients of an arena over the ranks, bucket by bucket, during backward.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/gradient_sum.hpp>
#include <ddpxx/parallel/stepped_segments.hpp>

namespace ddpxx {

/// What finish() does with parameters that got no gradient. refuse: it throws an error with their names. find (the
/// setting find_unused_parameters): it averages zeros for them. learn (the setting static_graph): it averages zeros for
/// those of the first step, and later steps do not wait for them; a step that uses other parameters than the first one
/// is an error.
enum class UnusedParameters { refuse, find, learn };

/// The names of the first five parameters of a list, and the number of the others.
inline std::string some_names(const Arena& arena, const std::vector<std::size_t>& parameters) {
  constexpr std::size_t kShown = 5;
  std::string names;
  for (std::size_t k = 0; k < std::min(parameters.size(), kShown); ++k)
    names += (k == 0 ? "" : ", ") + arena[parameters[k]].name;
  if (parameters.size() > kShown) names += " and " + std::to_string(parameters.size() - kShown) + " more";
  return names;
}

/// The error that names parameters which got no gradient.
inline Error unused_parameters_error(const Arena& arena, const std::vector<std::size_t>& unused, int rank) {
  return Error{Errc::config, "no gradient came for " + some_names(arena, unused) +
                                 ": use them in the loss, freeze them, or set find_unused_parameters=true"}
      .with("rank", rank);
}

struct ReducerOptions {
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;  ///< Small, so that communication starts early.
  std::int64_t bucket_bytes = std::int64_t{25} << 20;
  /// If given, the sizes of the buckets in order, instead of the two above; further buckets have the last size.
  std::vector<std::int64_t> bucket_bytes_list = {};
  UnusedParameters unused = UnusedParameters::refuse;
  bool bucket_is_segment = false;  ///< Each segment of the arena is one bucket; the sizes above are not used.
  /// Starts the collective of bucket `i`; by default the sum over all ranks, in place.
  std::function<Pending(std::size_t i, at::Tensor memory)> start = {};
  /// The work of this rank after the collective of bucket `i`. It is called in bucket order on every rank, so it may
  /// communicate.
  std::function<void(std::size_t i, at::Tensor memory)> finish = {};
  /// If given: each segment is one bucket, gets its gradient memory from here, and is stepped by it, in bucket order.
  /// While the collective of one bucket runs, the bucket before it is stepped.
  SteppedSegments* stepped = nullptr;
};

/// Averages gradients over a group while backward is still running.
///
/// A bucket is a range of the arena's gradient memory. As soon as all gradients of a bucket are `ready`, its sum over
/// the ranks is started; buckets start in index order on every rank, in whatever order the gradients are computed. A
/// gradient is first multiplied by 1/W and then summed, as in PyTorch's DDP, so that both round equally.
///
///     Reducer reducer{arena, group};
///     for (i : reversed parameters) { write arena[i].gradient; reducer.ready(i); }
///     reducer.finish();                       // arena[i].gradient now holds the average over the ranks
class Reducer {
 public:
  Reducer(Arena& arena, const Group& group, const ReducerOptions& options = {});

  /// Gradients are multiplied by `scale` instead of 1/W. Call it outside of backward passes.
  void set_scale(double scale) noexcept { scale_ = scale; }

  /// Takes the gradient of parameter `i`, which has been written into the arena and is not scaled yet.
  /// Errors  `config` if ready() was called for this parameter in this step before, and, with
  ///         UnusedParameters::learn, if the first step did not use it.
  void ready(std::size_t i);

  /// Takes a gradient of parameter `i` from autograd, and adds it to the gradients that `defer` took. An undefined
  /// gradient counts as zeros.
  /// Errors  those of ready(i).
  void ready(std::size_t i, const at::Tensor& gradient);

  /// Where a backward pass may write the gradient of parameter `i` before ready() or defer() takes it, see GradientSum.
  at::Tensor place(std::size_t i);

  /// Adds a gradient of a backward pass that is not the last of its step; nothing is sent.
  /// Errors  `config` with UnusedParameters::learn, if the first step did not use the parameter.
  void defer(std::size_t i, const at::Tensor& gradient);

  /// Waits until the averages of all buckets lie in the arena.
  /// Ranks   Collective: every rank calls it once a step.
  /// Errors  `config`, naming the parameters that got no gradient on this rank, with UnusedParameters::refuse, and with
  ///         UnusedParameters::learn after the first step. All buckets are sent before, so that no other rank waits
  ///         forever in this step; if only some ranks left a parameter unused, the others get the error of a lost peer
  ///         in the next step. `peer` if a rank is lost.
  void finish();

  /// Drops the gradients of a step that an exception has ended, and waits for the sums that were started. Returns
  /// whether any bucket of that step was started. The exception may be the one that finish() throws.
  bool abandon();

  /// Takes part in a step for which this rank has no batch, with the deferred gradients or zeros.
  /// Ranks   Collective: the other ranks call ready() for all parameters, and finish().
  void sit_out();

  /// Called before a backward pass: makes `.grad` undefined.
  void begin() { sum_.begin_pass(); }

  /// The buckets as [first, last) ranges of parameter indices.
  std::vector<std::pair<std::size_t, std::size_t>> buckets() const;

 private:
  struct Bucket {
    std::size_t first = 0;
    std::size_t last = 0;
    std::size_t missing = 0;
    at::Tensor memory;
    std::vector<std::size_t> idle = {};  ///< Parameters of this bucket that the first step did not use.
  };

  /// The size in bytes from which bucket `k` is full.
  std::int64_t limit_of(std::size_t k) const;

  void cut_buckets();

  /// Prepares for the next step, of which no gradient has come yet.
  void reset();

  void learn(const std::vector<std::size_t>& unused);

  void check_used(std::size_t i) const;

  Error unused_error(const std::vector<std::size_t>& unused) const;

  void mark(std::size_t i);

  void launch_full_buckets();

  /// Notes whether the gradient of parameter `i` is multiplied by the scale. A large one that is not is multiplied at
  /// once, while it is in the processor's cache; small ones wait for scale().
  void note_scaled(std::size_t i, bool is_scaled);

  /// Multiplies the gradients of a bucket that are not scaled yet by the scale. One operation multiplies all neighbours
  /// and the gaps between them, which are zeros.
  void scale(const Bucket& bucket);

  void open(std::size_t i);

  void finish_oldest();

  Arena* arena_;
  const Group* group_;
  ReducerOptions options_;
  double scale_;
  GradientSum sum_;
  std::vector<bool> scaled_;  ///< False for parameters whose gradient of this step is still to be scaled.
  std::vector<bool> arrived_;
  std::vector<bool> idle_;  ///< Parameters that the first step did not use, with UnusedParameters::learn.
  bool learned_ = false;
  bool fed_ = false;  ///< This step has received a gradient.
  std::vector<std::size_t> bucket_of_;
  std::vector<Bucket> buckets_;
  std::vector<Pending> pending_;
  std::size_t finished_ = 0;  ///< How many of `pending_`, from the first on, are finished.
  std::size_t next_ = 0;
  bool refused_ = false;  ///< This step will throw an error: no further segment is stepped.
  bool started_ = false;  ///< A bucket was started in a step that finish() has not ended without an error.
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/parallel/reducer_inl.hpp>
#endif
