// ddpxx/flat/gradient_sum.hpp — adds up the gradients of a step in flat memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <tuple>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/mul.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/number.hpp>

namespace ddpxx {

/// Sums the gradients of one optimizer step, over one or more backward passes, in the arena. The first gradient of a
/// parameter replaces the last step's values, and zeros the gap behind the parameter; later gradients are added.
class GradientSum {
 public:
  /// `arena` must have memory for all gradients (Gradients::whole).
  explicit GradientSum(Arena& arena) : arena_{&arena}, written_(arena.size(), false), placed_(arena.size(), true) {}

  /// True if this step has written a gradient of parameter `i`.
  bool written(std::size_t i) const { return written_[i]; }

  /// The memory in which a backward pass may write the first gradient of parameter `i` in this step. Undefined from the
  /// second call in a pass on, since autograd may add the gradients of several operations, and between two steps.
  at::Tensor place(std::size_t i) {
    const auto& entry = (*arena_)[i];
    if (written_[i] || placed_[i] || entry.parameter.scalar_type() != entry.gradient.scalar_type()) return {};
    placed_[i] = true;
    // Autograd stores a tensor as `.grad` without a copy only if no other reference to it exists. detach() would be two
    // operations.
    return entry.gradient.tensor_data();
  }

  /// Adds one backward pass's gradient; an undefined gradient counts as zeros.
  void add(std::size_t i, const at::Tensor& gradient) { std::ignore = add(i, gradient, 1.0); }

  /// Adds the last backward pass's gradient, and multiplies the sum by `scale` if that needs no further pass over the
  /// memory, as while a first gradient is copied. Returns whether it has: if not, the caller multiplies. A sparse
  /// gradient counts as the dense one.
  [[nodiscard]] bool add(std::size_t i, const at::Tensor& gradient, double scale) {
    if (gradient.defined() && gradient.is_sparse()) return add(i, gradient.to_dense(), scale);
    at::Tensor view = (*arena_)[i].gradient;
    const bool first = begin(i);
    if (first && !gradient.defined()) {
      view.zero_();
      return true;
    }
    if (!first) {
      if (gradient.defined()) view.add_(gradient);
    } else if (gradient.is_alias_of(view) && gradient.storage_offset() == view.storage_offset()) {
      // It was written into its place.
    } else if (scale != 1.0 && view.scalar_type() == gradient.scalar_type()) {
      at::mul_out(view, gradient, as_number(scale));
      return true;
    } else {
      view.copy_(gradient);  // of another type, it is multiplied afterwards: rounded once, in the sum's own type
    }
    return scale == 1.0;
  }

  /// Like add(), but on a GPU the first gradients of several parameters are copied by one operation. Their sums are
  /// valid after copy_waiting() or publish().
  void add_later(std::size_t i, const at::Tensor& gradient) {
    const auto& view = (*arena_)[i].gradient;
    const bool is_copied = gradient.defined() && gradient.is_cuda() && !gradient.is_sparse() && !written_[i] &&
                           !gradient.is_alias_of(view) && gradient.strides() == view.strides() &&
                           stream_of(gradient.device()) == stream_;
    if (!is_copied) {
      if (written_[i]) copy_waiting();
      return add(i, gradient);
    }
    begin(i);
    // An operation copies tensors of equal types at once.
    const auto same_types = [&](const Waiting& waiting) {
      return waiting.sums.front().scalar_type() == view.scalar_type() &&
             waiting.gradients.front().scalar_type() == gradient.scalar_type();
    };
    auto waiting = std::find_if(waiting_.begin(), waiting_.end(), same_types);
    if (waiting == waiting_.end()) waiting = waiting_.insert(waiting_.end(), Waiting{});
    waiting->sums.push_back(view);
    waiting->gradients.push_back(gradient);
    waiting_bytes_ += gradient.nbytes();
    if (waiting_bytes_ >= kMaxWaitingBytes) copy_waiting();
  }

  /// Copies the gradients that add_later() has not copied yet.
  void copy_waiting() {
    const c10::OptionalStreamGuard stream{stream_};  // the hook that comes here may run on another one
    for (auto& [sums, gradients] : waiting_) at::_foreach_copy_(sums, gradients);
    waiting_.clear();
    waiting_bytes_ = 0;
  }

  /// Takes the values that the caller has written into the arena as the gradient of parameter `i`.
  void take(std::size_t i) { begin(i); }

  /// Ends the step: gradients that were not written become zeros, and `.grad` becomes a view of each sum.
  void publish() {
    copy_waiting();
    for (std::size_t i = 0; i < arena_->size(); ++i) {
      const auto& entry = (*arena_)[i];
      if (begin(i)) entry.gradient.zero_();
      written_[i] = false;
      placed_[i] = true;
      if (entry.parameter.scalar_type() == entry.gradient.scalar_type())
        entry.parameter.mutable_grad() = entry.gradient;
    }
  }

  /// Drops what this step has written, because an exception has ended it.
  void drop() {
    waiting_.clear();
    waiting_bytes_ = 0;
    written_.assign(written_.size(), false);
    placed_.assign(placed_.size(), true);
  }

  /// Begins a backward pass. `.grad` is undefined from now on, or autograd would add to it in place.
  void begin_pass() {
    if (arena_->size() > 0 && (*arena_)[0].parameter.is_cuda()) stream_ = stream_of((*arena_)[0].parameter.device());
    hide();
    placed_.assign(placed_.size(), false);
  }

  /// Makes `.grad` undefined, as when the memory of the sums is freed.
  void hide() {
    for (const auto& entry : arena_->entries()) entry.parameter.mutable_grad().reset();
  }

 private:
  /// Gradients of equal types, and the memory to which they will be copied.
  struct Waiting {
    std::vector<at::Tensor> sums, gradients;
  };
  static constexpr std::size_t kMaxWaitingBytes = std::size_t{64} << 20;

  static c10::Stream stream_of(const at::Device& device) {
    return c10::impl::VirtualGuardImpl{device.type()}.getStream(device);
  }

  /// True on the first call for parameter `i` in a step, which sets the gap behind the parameter to zero: clipping may
  /// have left NaN there, which no gradient overwrites.
  bool begin(std::size_t i) {
    if (written_[i]) return false;
    if (const auto& gap = (*arena_)[i].gap; gap.defined()) gap.zero_();
    written_[i] = true;
    return true;
  }

  Arena* arena_;
  std::vector<bool> written_;
  /// The current stream when the pass began, on a GPU. Gradients that a module computes on another stream do not wait:
  /// their memory may be used again before this stream has read it.
  std::optional<c10::Stream> stream_;
  std::vector<Waiting> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::vector<bool> placed_;  ///< The place of the gradient is taken in this pass, or no step has begun.
};

}  // namespace ddpxx
