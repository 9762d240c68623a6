// ddpxx/parallel/buffers.hpp — keeps the buffers of a model, such as running means, equal on all ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/parallel/concept.hpp>

namespace ddpxx {

namespace detail {

/// Broadcasts tensors of one type and device by one collective.
inline void broadcast_as_one(std::span<const at::Tensor> tensors, const Group& group, int root) {
  if (tensors.size() == 1 && tensors.front().is_contiguous()) return broadcast(tensors.front(), group, root);
  std::vector<at::Tensor> pieces;
  for (const auto& tensor : tensors) pieces.push_back(tensor.reshape({-1}));
  const auto flat = at::cat(pieces);
  broadcast(flat, group, root);
  if (group.rank() == root) return;
  // variable_data() has a version counter of its own. A backend that writes to a tensor does not count that as a
  // version either, so autograd accepts a buffer that an earlier forward pass has kept.
  std::vector<at::Tensor> targets;
  pieces.clear();
  std::int64_t begin = 0;
  for (const auto& tensor : tensors) {
    targets.push_back(tensor.variable_data());
    pieces.push_back(flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
  at::_foreach_copy_(targets, pieces);
}

}  // namespace detail

/// Broadcasts the tensors of `root`. Those of one type and device travel together, in one flat copy: a model may have
/// hundreds of small buffers, and starting a collective takes longer than sending one of them.
/// Ranks   Collective: the types and sizes are equal on all ranks, in one order.
inline void broadcast_together(std::span<const at::Tensor> tensors, const Group& group, int root = 0) {
  if (group.size() == 1) return;
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> rest{tensors.begin(), tensors.end()};
  while (!rest.empty()) {
    const auto type = rest.front().scalar_type();
    const auto device = rest.front().device();
    const auto others = std::stable_partition(rest.begin(), rest.end(), [&](const at::Tensor& tensor) {
      return tensor.scalar_type() == type && tensor.device() == device;
    });
    detail::broadcast_as_one({rest.begin(), others}, group, root);
    rest.erase(rest.begin(), others);
  }
}

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
    if (std::exchange(step_begins_, sync == Sync::now)) share();
  }
  /// Makes the buffers equal to those of `root` if they are broadcast in each step.
  /// Ranks   Collective.
  void share(int root = 0) const {
    if (when_ == BroadcastBuffers::each_step) send(root);
  }
  /// Makes the buffers equal to those of `root`, also with `once`; if `replicas` was given, to those of the rank that
  /// is `root` in both groups.
  ///
  /// Ranks   Collective.
  void send(int root = 0) const {
    broadcast_together(buffers_, *group_, root);
    if (replicas_ != nullptr) broadcast_together(buffers_, *replicas_, root);
  }
  /// The next backward pass is the first one of a step: an exception has ended the step before.
  void abandon() noexcept { step_begins_ = true; }

 private:
  std::vector<at::Tensor> buffers_;
  const Group* group_ = nullptr;
  const Group* replicas_ = nullptr;
  BroadcastBuffers when_ = BroadcastBuffers::once;
  bool step_begins_ = true;
};

}  // namespace ddpxx
