// ddpxx/parallel/hooks/batched_power_sgd.hpp — sends a bucket of gradients as one product of two thin matrices.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/parallel/gradient_hook.hpp>
#include <ddpxx/parallel/hooks/orthogonalize.hpp>

namespace ddpxx {

struct BatchedPowerSGDConfig {
  std::int64_t matrix_rank = 1;
  std::int64_t start_step = 1000;
  bool error_feedback = true;
  bool warm_start = true;
  std::int64_t seed = 0;

  static constexpr auto describe() {
    using Config = BatchedPowerSGDConfig;
    return fields(
        field<&Config::matrix_rank>(
            "Rank of the matrix that approximates a bucket; a higher rank is more precise and sends more", at_least(1)),
        field<&Config::start_step>("Number of first steps without compression, which would disturb them most",
                                   at_least(0), Unit::steps),
        field<&Config::error_feedback>("Add the error of one step's compression to the next step's gradient"),
        field<&Config::warm_start>("Start each step from the matrices of the last step instead of random ones"),
        field<&Config::seed>("Seed of the random matrices"));
  }
};

/// As PowerSGD, but all gradients of a bucket, vectors too, are written one after the other into one square matrix,
/// filled up with zeros. It takes two products and two small messages for each bucket, and loses more, since the rows
/// of the square are unrelated. PyTorch's documentation advises PowerSGD where accuracy suffers. All ranks end with
/// equal bits. It holds the square and, with error feedback, a copy of it.
/// Source  Vogels et al. 2019, arXiv:1905.13727; torch's batched_powerSGD_hook, with which results agree.
class BatchedPowerSGD {
 public:
  using Config = BatchedPowerSGDConfig;

  BatchedPowerSGD(const Config& config, const Group&)
      : config_{config}, generator_{at::detail::createCPUGenerator(static_cast<std::uint64_t>(config.seed))} {}

  void attach(const Arena& arena, std::span<const BucketRange> buckets) {
    buckets_.clear();
    for (const auto& [first, last] : buckets) {
      auto& bucket = buckets_.emplace_back();
      for (auto i = first; i < last; ++i) {
        bucket.parts.push_back({arena[i].offset - arena[first].offset, arena[i].numel, bucket.numel});
        bucket.numel += arena[i].numel;
      }
      bucket.side =
          std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(bucket.numel)))));
      bucket.rank = std::min(bucket.side, config_.matrix_rank);
    }
  }

  /// Sets the Q that the first compressed step of a bucket starts from.
  /// Shapes  [n, rank], where n² is the smallest square number that is not less than the bucket's number of elements.
  /// Ranks   Local; all ranks must set equal values.
  /// Errors  `config` for a Q of another shape.
  void set_q(std::size_t bucket, const at::Tensor& q) {
    auto& chosen = buckets_.at(bucket);
    if (q.dim() != 2 || q.size(0) != chosen.side || q.size(1) != chosen.rank)
      throw Error{Errc::config, "BatchedPowerSGD: the Q of bucket " + std::to_string(bucket) + " has " +
                                    std::to_string(chosen.side) + " rows and " + std::to_string(chosen.rank) +
                                    " columns"};
    chosen.first_q = q;
  }

  Pending start(std::size_t i, at::Tensor memory, const Group& group) {
    if (i == 0) compressing_ = steps_++ >= config_.start_step;
    if (!compressing_) return start_all_reduce(memory, group);
    auto& bucket = buckets_[i];
    if (!bucket.square.defined()) allocate(bucket, memory.options());
    const auto flat = bucket.square.view(-1);
    for (const auto& part : bucket.parts)
      flat.narrow(0, part.packed, part.numel).copy_(memory.narrow(0, part.offset, part.numel));
    flat.narrow(0, bucket.numel, flat.numel() - bucket.numel).zero_();
    if (config_.error_feedback) remember(bucket);
    prepare_q(bucket);
    at::mm_out(bucket.p, bucket.square, bucket.q);
    return start_all_reduce(bucket.p, group);
  }

  void finish(std::size_t i, at::Tensor memory, const Group& group) {
    if (!compressing_) return;
    auto& bucket = buckets_[i];
    detail::orthogonalize(bucket.p);
    at::mm_out(bucket.q, bucket.square.t(), bucket.p);
    all_reduce(bucket.q, group);
    at::mm_out(bucket.square, bucket.p, bucket.q.t());
    // Divided by W, so that the sum of all ranks' errors is the error of the sum of their gradients.
    if (config_.error_feedback) bucket.error.sub_(bucket.square, 1.0 / group.size());
    const auto flat = bucket.square.view(-1);
    for (const auto& part : bucket.parts)
      memory.narrow(0, part.offset, part.numel).copy_(flat.narrow(0, part.packed, part.numel));
  }

  /// Continues as after `step` steps.
  void resume_at(std::int64_t step) noexcept { steps_ = step; }

 private:
  /// A parameter: its offset in the bucket, and its offset among the elements of the bucket without the gaps.
  struct Part {
    std::int64_t offset = 0;
    std::int64_t numel = 0;
    std::int64_t packed = 0;
  };
  struct Bucket {
    std::vector<Part> parts = {};
    std::int64_t numel = 0;
    std::int64_t side = 0;
    std::int64_t rank = 0;
    at::Tensor first_q = {};
    at::Tensor square = {};
    at::Tensor p = {};
    at::Tensor q = {};  ///< The next step starts from it.
    at::Tensor error = {};
    bool has_q = false;
  };

  static void allocate(Bucket& bucket, const at::TensorOptions& options) {
    bucket.square = at::empty({bucket.side, bucket.side}, options);
    bucket.p = at::empty({bucket.side, bucket.rank}, options);
    bucket.q = at::empty({bucket.side, bucket.rank}, options);
  }

  /// Adds the last step's error to the gradient and keeps a copy of the sum, from which finish() computes this step's
  /// error. An error that is not finite, because gradients have overflowed, counts as zero.
  static void remember(Bucket& bucket) {
    if (bucket.error.defined())
      bucket.error.copy_(bucket.square.add_(bucket.error.nan_to_num_(0, 0, 0)));
    else
      bucket.error = bucket.square.clone();
  }

  void prepare_q(Bucket& bucket) {
    if (bucket.first_q.defined())
      bucket.q.copy_(std::exchange(bucket.first_q, {}));
    else if (bucket.has_q && config_.warm_start)
      detail::revive(bucket.q);
    else
      bucket.q.copy_(at::randn({bucket.side, bucket.rank}, generator_, at::TensorOptions{at::kFloat}));
    bucket.has_q = true;
    detail::orthogonalize(bucket.q);
  }

  Config config_;
  at::Generator generator_;
  std::vector<Bucket> buckets_;
  std::int64_t steps_ = 0;  ///< Steps that have begun.
  bool compressing_ = false;
};

static_assert(GradientHook<BatchedPowerSGD> && explain_hook<BatchedPowerSGD>());

}  // namespace ddpxx
