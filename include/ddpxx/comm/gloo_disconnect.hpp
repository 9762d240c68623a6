// ddpxx/comm/gloo_disconnect.hpp — closes the connections of a Gloo backend whose rank has failed.
#pragma once

#include <chrono>
#include <exception>
#include <limits>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <ddpxx/comm/pipe_signal_scope.hpp>

namespace ddpxx::detail {

/// Closes the connections of a Gloo backend. Gloo has no function for that, but closes all of them when a message does
/// not arrive in time, so this waits a millisecond for a message that no rank sends. If the connection to a peer is
/// already closed, Gloo does not wait and the other connections stay open, so each peer is tried.
inline void disconnect_gloo(c10d::Backend& backend) noexcept {
  constexpr int kUnusedTag = std::numeric_limits<int>::max();
  const PipeSignalScope broken_pipes_are_errors;
  const int size = backend.getSize();
  for (int next = 1; next < size; ++next) {
    try {
      std::vector<at::Tensor> message{at::empty({1}, at::kByte)};
      backend.recv(message, (backend.getRank() + next) % size, kUnusedTag)->wait(std::chrono::milliseconds{1});
    } catch (const std::exception&) {  // the message did not arrive
    }
  }
}

}  // namespace ddpxx::detail
