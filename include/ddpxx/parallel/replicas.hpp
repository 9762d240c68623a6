// ddpxx/parallel/replicas.hpp — compares the parameters of ranks that should hold equal ones.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/flat/arena.hpp>

namespace ddpxx {

/// The parameters of this rank, or the parts of them that it holds, of which other ranks hold copies.
struct Replicas {
  std::vector<std::pair<std::string, at::Tensor>> values = {};  ///< By the names of the parameters.
  int piece = 0;  ///< Ranks with equal numbers hold copies of each other's values.
};

/// Adds the values that this rank's optimizer steps, or for a frozen arena this rank's pieces, under the names of their
/// parameters.
void add_slices(Replicas& replicas, const Arena& arena);
/// Adds the whole parameters, as the model computes with them.
void add_parameters(Replicas& replicas, const Arena& arena);

/// Compares the bits of values that several ranks hold, by the CRC-32C of each parameter. Values on a GPU are copied to
/// the host, one parameter after the other. Returns a sentence that names the first rank whose values are not those of
/// most ranks, and the first parameter that differs; empty where all are equal.
/// Ranks   Collective: all ranks return the same.
std::string difference_of_replicas(const Replicas& mine, const Group& group);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/parallel/replicas_inl.hpp>
#endif
