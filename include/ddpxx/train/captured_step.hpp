// ddpxx/train/captured_step.hpp — a step that is done plainly at first, then captured, and replayed from then on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/type_name.hpp>
#include <ddpxx/nn/loss.hpp>
#include <ddpxx/train/step_capture.hpp>

namespace ddpxx {

/// What a batch of a captured step needs: `each_tensor(visit)` calls `visit(tensor)` for each of its tensors, which
/// `visit` may replace.
template <class Batch>
concept VisitsTensors = requires(Batch batch) { batch.each_tensor([](at::Tensor&) {}); };

/// Does the two parts of a step, forward with backward, and clipping with the optimizer, so that others can work in
/// between. After some plain steps both parts are captured with the first batch that is as large as the largest so far;
/// a later step copies its batch to the memory of the captured one. A batch of other sizes, as the last of an epoch, is
/// computed plainly; with a larger one the step is captured anew.
class CapturedStep {
 public:
  /// What forward and backward leave.
  struct Result {
    Loss loss;
    at::Tensor found_inf;  ///< Undefined where the loss is not scaled.
  };

  explicit CapturedStep(std::unique_ptr<StepCapture> capture) : capture_{std::move(capture)} {}

  /// Runs a whole step. See StepCapture::run.
  void run(const std::function<void()>& work) { capture_->run(work); }

  /// Makes the step that begins run without capture or replay.
  void stay_plain() noexcept { way_ = Way::plain; }
  /// Decides whether the step that begins, whose only micro-batch is `batch`, is captured, replayed, or run without
  /// either. The batch is on the device.
  /// Errors  `config` for a batch that does not show its tensors.
  template <class Batch>
  void choose_way(Batch& batch) {
    if constexpr (!VisitsTensors<Batch>) {
      throw Error{Errc::config, "training.cuda_graph: the batches are " + type_name<Batch>() +
                                    ": add `template <class Visit> void each_tensor(const Visit& visit)`, which calls "
                                    "visit(tensor) for each of its tensors, or set cuda_graph=false"};
    } else {
      size_ = numel(batch);
      largest_ = std::max(largest_, size_);
      if (replay_step_ && fits(batch))
        way_ = Way::replay;
      else if (plain_steps_ >= kPlainSteps && size_ == largest_ && size_ > captured_size_)
        way_ = Way::capture;
      else
        ++plain_steps_;
    }
  }
  bool is_plain() const noexcept { return way_ == Way::plain; }

  /// The result of `compute(batch, targets)` on this batch and this number of targets, 0-dim.
  template <class Batch, class Compute>
  const Result& gradients(Batch& batch, const at::Tensor& targets, const Compute& compute) {
    if (way_ == Way::capture) {
      replay_gradients_ = replay_step_ = {};
      captured_size_ = 0;
      keep(batch);
      targets_ = targets.clone();
      replay_gradients_ = capture_->capture([&] { result_ = compute(batch, targets_); });
    } else {
      auto place = batch_.begin();
      batch.each_tensor([&](const at::Tensor& tensor) {
        if (tensor.defined()) place->copy_(tensor, /*non_blocking=*/true);
        ++place;
      });
      targets_.copy_(targets);
      replay_gradients_();
    }
    return result_;
  }

  /// The gradients' norm, which `step()` returns.
  template <class Step>
  at::Tensor step(const Step& step) {
    if (way_ == Way::capture) {
      replay_step_ = capture_->capture([&] { norm_ = step(); });
      captured_size_ = size_;
    } else {
      replay_step_();
    }
    return norm_.clone();  // the next step writes there before this one's norm is read
  }

 private:
  /// The first steps prepare what LibTorch prepares once, as plans and workspaces of matrix products.
  static constexpr std::int64_t kPlainSteps = 3;
  enum class Way { plain, capture, replay };

  /// Numbers in all tensors of a batch.
  template <class Batch>
  static std::int64_t numel(Batch& batch) {
    std::int64_t sum = 0;
    batch.each_tensor([&](const at::Tensor& tensor) { sum += tensor.defined() ? tensor.numel() : 0; });
    return sum;
  }
  /// Copies the batch to memory that nothing else writes.
  template <class Batch>
  void keep(Batch& batch) {
    batch_.clear();
    batch.each_tensor([&](at::Tensor& tensor) {
      if (tensor.defined()) tensor = tensor.clone();
      batch_.push_back(tensor);
    });
  }
  template <class Batch>
  bool fits(Batch& batch) const {
    std::size_t i = 0;
    bool equal = true;
    batch.each_tensor([&](const at::Tensor& tensor) {
      const auto known = i < batch_.size() ? batch_[i] : at::Tensor{};
      equal = equal && known.defined() == tensor.defined() &&
              (!known.defined() || (known.sizes() == tensor.sizes() && known.scalar_type() == tensor.scalar_type()));
      ++i;
    });
    return equal && i == batch_.size();
  }

  std::unique_ptr<StepCapture> capture_;
  Way way_ = Way::plain;
  std::int64_t plain_steps_ = 0;
  std::int64_t size_ = 0;  ///< Size of this step's batch, as `numel` counts.
  std::int64_t largest_ = 0;
  std::int64_t captured_size_ = 0;  ///< 0 until both parts are captured.
  // What the captured operations read and write.
  std::vector<at::Tensor> batch_;
  at::Tensor targets_;
  Result result_;
  at::Tensor norm_;
  Replay replay_gradients_;
  Replay replay_step_;  ///< Empty until both parts are captured.
};

}  // namespace ddpxx
