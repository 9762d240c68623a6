// ddpxx/parallel/buffers.hpp — keeps the buffers of a model, such as running means, equal on all ranks.
#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/parallel/concept.hpp>

namespace ddpxx {

enum class BroadcastBuffers { once, each_step };

/// Broadcasts rank 0's buffers: when it is made and, with `each_step`, before the first forward pass of each step.
class SharedBuffers {
 public:
  SharedBuffers() = default;
  /// Ranks   Collective. If `replicas` is given, the buffers are broadcast in that group too.
  SharedBuffers(std::vector<at::Tensor> buffers, const Group& group, BroadcastBuffers when,
                const Group* replicas = nullptr)
      : buffers_{std::move(buffers)}, group_{&group}, replicas_{replicas}, when_{when} {
    send();
  }

  /// Ranks   Collective: all ranks call it before every backward pass, with equal `sync`.
  void begin_backward(Sync sync) {
    if (std::exchange(step_begins_, sync == Sync::now) && when_ == BroadcastBuffers::each_step) send();
  }

 private:
  void send() const {
    for (const auto& buffer : buffers_) {
      broadcast(buffer, *group_);
      if (replicas_ != nullptr) broadcast(buffer, *replicas_);
    }
  }

  std::vector<at::Tensor> buffers_;
  const Group* group_ = nullptr;
  const Group* replicas_ = nullptr;
  BroadcastBuffers when_ = BroadcastBuffers::once;
  bool step_begins_ = true;
};

}  // namespace ddpxx
