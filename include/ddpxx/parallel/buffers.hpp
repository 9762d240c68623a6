// ddpxx/parallel/buffers.hpp — keeps the buffers of a model, such as running means, the same on all ranks.
#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/parallel/concept.hpp>

namespace ddpxx {

enum class BroadcastBuffers { once, each_step };

/// Gives all ranks rank 0's buffers: at the start, and before each step's first forward pass if asked.
class SharedBuffers {
 public:
  SharedBuffers() = default;
  /// Ranks   Collective; `replicas`, if given, are further ranks that the buffers go to.
  SharedBuffers(std::vector<at::Tensor> buffers, const Group& group, BroadcastBuffers when,
                const Group* replicas = nullptr)
      : buffers_{std::move(buffers)}, group_{&group}, replicas_{replicas}, when_{when} {
    send();
  }

  /// Ranks   Collective: before every backward pass, with the same `sync`.
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
