// ddpxx/train/matrix_owners.hpp — one owner rank for each matrix: it alone works on the whole matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/arena.hpp>

namespace ddpxx {

/// Changes matrices whose elements lie on several ranks, each matrix once: the ranks that hold a copy of the model send
/// their parts of a matrix to its owner, the owner changes the matrix, and each rank gets its part of the result. The
/// owners share the work evenly, by the number of multiplications in a product of a matrix and its transpose.
/// Rank r holds piece r modulo `arena.pieces()`, as the ranks of every strategy do: all elements under DDP, one of W
/// pieces under ZeRO and FSDP, one piece of its row of ranks under HSDP.
class MatrixOwners {
 public:
  /// `matrices` are indices of entries of `arena` that have two dimensions, the same ones on each rank.
  MatrixOwners(const Arena& arena, std::vector<std::size_t> matrices, const Group& group);

  /// The elements of matrix i that rank `rank` holds, counted from the begin of the matrix.
  std::pair<std::int64_t, std::int64_t> range(std::size_t i, int rank) const;

  /// Replaces each matrix by `change(matrix)`, which has the same shape. `parts[i]` are the elements of matrix i that
  /// this rank holds, 1-D; they are read and then overwritten.
  /// Ranks   Collective.
  void transform(std::span<const at::Tensor> parts, const std::function<at::Tensor(const at::Tensor&)>& change) const;

 private:
  class Exchange;

  double cost(std::size_t i) const;
  std::int64_t size(std::size_t i, int rank) const;
  template <class Body>
  void for_own(Body&& body) const;

  const Arena* arena_;
  std::vector<std::size_t> matrices_;
  const Group* group_;
  std::vector<int> owners_;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/matrix_owners_inl.hpp>
#endif
