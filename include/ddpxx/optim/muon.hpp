// ddpxx/optim/muon.hpp — Muon for the matrices of layers, AdamW for all other parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/optim/concept.hpp>
#include <ddpxx/optim/group_table.hpp>
#include <ddpxx/optim/muon_config.hpp>
#include <ddpxx/optim/parameter_group.hpp>

namespace ddpxx {

/// An approximation of the orthogonal matrix that is nearest to `matrix`, in bfloat16, by Newton-Schulz iterations.
/// Source  Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"; the arithmetic is that of
///         torch.optim.Muon.
at::Tensor orthogonalized(const at::Tensor& matrix, std::int64_t iterations, double epsilon);

/// Steps the matrices of layers by their orthogonalized momentum, and everything else, such as embeddings, biases and
/// norms, by AdamW. In a model without layers that train Muon steps all matrices. Each matrix is orthogonalized once,
/// by the rank that owns it. A group's own learning rate is the peak of what it has: of a matrix, or of AdamW.
/// Ranks   Collective: each step exchanges the matrices with their owners.
/// Source  torch.optim.Muon; on one rank the steps of float32 and float64 parameters are equal. In 16 bits they differ by
///         rounding, since ATen adds a transposed matrix by another kernel.
class Muon {
 public:
  using Config = MuonConfig;
  static constexpr const char* kSnapshotName = "Muon";

  Muon(const Config& config, const Arena& arena, const MakeMatrixTransform& make_transform,
       std::span<const ParameterGroup> groups = kDecayGroups);

  void step(double learning_rate);

  std::span<const Moment> moments() const noexcept { return moments_; }
  /// The number of steps, 0-dim float32; AdamW has none on a rank that steps matrices only.
  const at::Tensor& step_count() const noexcept { return steps_; }
  void resume_at(std::int64_t);

 private:
  struct Matrix {
    std::vector<std::int64_t> shape;
    std::size_t group = 0;
    Slice part = {};  ///< The elements that this rank steps; none of them on some ranks.
    at::Tensor momentum = {};
  };

  double scale(const std::vector<std::int64_t>& shape) const;

  Config config_;
  GroupTable table_;
  Moment momentum_;
  std::vector<Matrix> matrices_;
  MatrixTransform transform_;
  std::optional<AdamW> adamw_;
  at::Tensor steps_;
  std::vector<Moment> moments_;
};

static_assert(explain_optimizer<Muon>() && MatrixOptimizer<Muon> && TakesParameterGroups<Muon>);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/optim/muon_inl.hpp>
#endif
