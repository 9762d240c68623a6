// ddpxx/comm/backend.hpp — the libraries that can carry collectives.
#pragma once

#include <array>

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// `automatic` is NCCL for ranks with GPUs, shared memory for ranks of one host without, and Gloo for all others; where
/// several hosts have the same number of ranks, at least two, shared memory within the hosts and Gloo between them.
/// Gloo copies the tensors of a GPU through the memory of the host, which is slow, but several ranks may then share a
/// GPU. Shared memory connects ranks of one host that compute on its CPU; it has the collectives of this library, and
/// not c10d's other calls such as send and recv.
enum class Backend { automatic, gloo, nccl, shared_memory };

constexpr auto enum_names(Backend) {
  return std::array{Named{Backend::automatic, "auto"}, Named{Backend::gloo, "gloo"}, Named{Backend::nccl, "nccl"},
                    Named{Backend::shared_memory, "shm"}};
}

}  // namespace ddpxx
