// Joins the pieces that the ranks hold to a segment of a strategy's arena.
#pragma once

#include <torch/torch.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/flat/arena.hpp>

namespace ddpxx {

/// Returns the whole range of which this rank holds `piece`; `arena` is cut into pieces over neighbouring ranks of
/// `group`.
/// Ranks   Collective.
inline at::Tensor assemble(const Arena& arena, const at::Tensor& piece, const Group& group) {
  if (arena.pieces() == 1) return piece.clone();
  const auto of_all_ranks = at::empty({piece.numel() * group.size()}, piece.options());
  all_gather(of_all_ranks, piece, group);
  const auto whole = piece.numel() * arena.pieces();
  return of_all_ranks.narrow(0, group.rank() / arena.pieces() * whole, whole);
}

}  // namespace ddpxx
