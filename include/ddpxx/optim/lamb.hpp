// ddpxx/optim/lamb.hpp — LAMB: Adam whose step is scaled for each parameter by the norms of the parameter and the step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/optim/group_table.hpp>
#include <ddpxx/optim/lamb_config.hpp>
#include <ddpxx/optim/parameter_group.hpp>

namespace ddpxx {

/// Steps each parameter by Adam's direction, times the norm of the parameter over the norm of that direction. It is
/// made for very large batches. Where one of the norms is 0 the factor is 1.
/// Ranks   Collective where the parameters are sharded: each step sums the squares of norms over the shards.
/// Errors  `config` for a slice of a group that is not among the groups; those of `GroupTable`.
/// Source  You et al. 2019, arXiv:1904.00962, Algorithm 2, without a bound on the norm of a parameter.
class LAMB {
 public:
  using Config = LAMBConfig;
  static constexpr const char* kSnapshotName = "LAMB";

  LAMB(const Config& config, const Arena& arena, SumOverShards sum_over_shards,
       std::span<const ParameterGroup> groups = kDecayGroups);

  void step(double learning_rate);

  std::span<const Moment> moments() const noexcept { return moments_; }
  const at::Tensor& step_count() const noexcept { return steps_; }

 private:
  Config config_;
  GroupTable table_;
  std::vector<Slice> slices_;
  SumOverShards sum_over_shards_;
  std::array<Moment, 2> moments_;
  /// Squares of the norms of values and directions, for each parameter of the arena: in float32, of float64 in float64.
  at::Tensor squares_;
  at::Tensor steps_;
};

static_assert(explain_optimizer<LAMB>() && ParameterOptimizer<LAMB> && TakesParameterGroups<LAMB>);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/optim/lamb_inl.hpp>
#endif
