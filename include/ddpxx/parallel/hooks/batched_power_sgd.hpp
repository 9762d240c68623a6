// ddpxx/parallel/hooks/batched_power_sgd.hpp — sends a bucket of gradients as one product of two thin matrices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/parallel/comm_hook.hpp>
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

  void attach(const Arena& arena, std::span<const BucketRange> buckets);

  /// Sets the Q that the first compressed step of a bucket starts from.
  /// Shapes  [n, rank], where n² is the smallest square number that is not less than the bucket's number of elements.
  /// Ranks   Local; all ranks must set equal values.
  /// Errors  `config` for a Q of another shape.
  void set_q(std::size_t bucket, const at::Tensor& q);

  Pending start(std::size_t i, at::Tensor memory, const Group& group);

  void finish(std::size_t i, at::Tensor memory, const Group& group);

  /// Continues as after `step` steps, with new matrices and without the errors of earlier steps.
  void resume_at(std::int64_t step);
  void abandon() noexcept { --steps_; }

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

  static void allocate(Bucket& bucket, const at::TensorOptions& options);

  /// Adds the last step's error to the gradient. An error that is not finite, because gradients have overflowed, counts
  /// as zero.
  static void add_error(Bucket& bucket);

  void prepare_q(Bucket& bucket);

  Config config_;
  at::Generator generator_;
  std::vector<Bucket> buckets_;
  std::int64_t steps_ = 0;  ///< Steps that have begun.
  bool compressing_ = false;
};

static_assert(CommHook<BatchedPowerSGD> && explain_hook<BatchedPowerSGD>());

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/parallel/hooks/batched_power_sgd_inl.hpp>
#endif
