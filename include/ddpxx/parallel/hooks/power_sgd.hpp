// ddpxx/parallel/hooks/power_sgd.hpp — sends gradient matrices as products of two thin matrices.
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

struct PowerSGDConfig {
  std::int64_t matrix_rank = 1;
  std::int64_t start_step = 1000;
  double min_compression_rate = 2.0;
  bool error_feedback = true;
  bool warm_start = true;
  double orthogonalization_epsilon = 0.0;
  std::int64_t seed = 0;

  static constexpr auto describe() {
    return fields(
        field<&PowerSGDConfig::matrix_rank>(
            "Rank of the matrices that approximate gradients; a higher rank is more precise and sends more",
            at_least(1)),
        field<&PowerSGDConfig::start_step>("Number of first steps without compression, which would disturb them most",
                                           at_least(0), Unit::steps),
        field<&PowerSGDConfig::min_compression_rate>(
            "A matrix that compression would not make smaller by this factor is sent whole", above(0.0)),
        field<&PowerSGDConfig::error_feedback>("Add the error of one step's compression to the next step's gradient"),
        field<&PowerSGDConfig::warm_start>("Start each step from the matrices of the last step instead of random ones"),
        field<&PowerSGDConfig::orthogonalization_epsilon>(
            "Added to the length of a column before it is normalized, for ranks up to 2", at_least(0.0)),
        field<&PowerSGDConfig::seed>("Seed of the random matrices"));
  }
};

/// A gradient M (rows x columns) is sent as P = MQ and then Q = M^T P, both of `matrix_rank` columns, and replaced by
/// P Q^T. Vectors, and matrices that would not become much smaller, are averaged whole, in the collective of the Ps.
/// Until `start_step` every gradient is averaged whole.
/// All ranks end with equal bits. The Qs are summed after backward, so that nothing hides the time this takes; under
/// StepInBackward they are summed during backward, which waits for them. Error feedback holds a copy of each compressed
/// gradient. A gradient of zeros gives zeros, also with an epsilon of 0, where PyTorch's hook may give NaN.
/// Source  Vogels et al. 2019, arXiv:1905.13727, Alg. 1 and 2; torch's powerSGD_hook, with which results agree.
class PowerSGD {
 public:
  using Config = PowerSGDConfig;

  PowerSGD(const Config& config, const Group&)
      : config_{config}, generator_{at::detail::createCPUGenerator(static_cast<std::uint64_t>(config.seed))} {}

  void attach(const Arena& arena, std::span<const BucketRange> buckets);

  /// Sets the Q that the first compressed step starts from, for a compressed parameter of the arena.
  /// Shapes  [columns, rank]: the parameter as a matrix is [size(0), columns].
  /// Ranks   Local; all ranks must set equal values.
  /// Errors  `config` for a parameter that is averaged whole, and for a Q of another shape.
  void set_q(std::size_t parameter, const at::Tensor& q);

  /// Whether the gradient of the arena's i-th parameter is compressed, once compression has begun.
  bool compresses(std::size_t parameter) const;

  Pending start(std::size_t i, at::Tensor memory, const Group& group);

  void finish(std::size_t i, at::Tensor memory, const Group& group);

  /// Continues as after `step` steps, with new matrices and without the errors of earlier steps.
  void resume_at(std::int64_t step);
  void abandon() noexcept { --steps_; }

 private:
  struct Matrix {
    std::size_t parameter = 0;
    std::int64_t offset = 0;  ///< In the bucket.
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t rank = 0;
    bool has_q = false;
    at::Tensor first_q = {};
    at::Tensor p = {};  ///< View of the bucket's `sent`.
    at::Tensor q = {};  ///< View of the bucket's `qs`; the next step starts from it.
    at::Tensor error = {};

    at::Tensor in(const at::Tensor& memory) const {
      return memory.narrow(0, offset, rows * columns).view({rows, columns});
    }
  };
  /// A parameter that is averaged whole.
  struct Whole {
    std::int64_t offset = 0;
    std::int64_t numel = 0;
    std::int64_t sent = 0;  ///< Offset in the bucket's `sent`.
  };
  struct Bucket {
    std::vector<Matrix> matrices;
    std::vector<Whole> whole;
    std::int64_t whole_numel = 0;
    at::Tensor sent;  ///< The gradients that are averaged whole, then the Ps.
    at::Tensor qs;
  };

  void add(Bucket& bucket, const ArenaEntry& entry, std::int64_t begin, std::size_t i) const;

  static void allocate(Bucket& bucket, const at::TensorOptions& options);

  /// Adds the last step's error to the gradient. An error that is not finite, because gradients have overflowed, counts
  /// as zero.
  static void add_error(const Matrix& matrix, at::Tensor gradient);

  void prepare_q(Matrix& matrix);

  Config config_;
  at::Generator generator_;
  std::vector<Bucket> buckets_;
  std::int64_t steps_ = 0;  ///< Steps that have begun.
  bool compressing_ = false;
};

static_assert(CommHook<PowerSGD> && explain_hook<PowerSGD>());

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/parallel/hooks/power_sgd_inl.hpp>
#endif
