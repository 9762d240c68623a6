// ddpxx/train/gradient_pass.hpp — forward and backward of a step, which leave the gradients that a ParameterStep uses.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/SmallVector.h>
#include <c10/util/StringUtil.h>

#include <ddpxx/comm/trace_span.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/nn/concept.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/precision/concept.hpp>
#include <ddpxx/train/anomaly_detector.hpp>
#include <ddpxx/train/captured_step.hpp>
#include <ddpxx/train/metric_sums.hpp>
#include <ddpxx/train/parameter_step.hpp>
#include <ddpxx/train/step_facts.hpp>
#include <ddpxx/train/unregistered_leaf.hpp>

namespace ddpxx {

/// The first half of a step: forward and backward of each micro-batch, and unscale. The model, the precision, the
/// strategy and `parameter_step` must outlive this object.
template <class Model, class Optimizer, class Precision, class Strategy>
class GradientPass {
 public:
  GradientPass(Model& model, const Precision& precision, Strategy& strategy,
               ParameterStep<Optimizer, Precision, Strategy>& parameter_step, at::Device device, int world_size,
               const Log& log)
      : model_{&model},
        precision_{&precision},
        strategy_{&strategy},
        parameter_step_{&parameter_step},
        device_{device},
        world_size_{world_size},
        log_{log} {}

  /// The loss of a batch, with autograd where it is on, and the model's metrics of it.
  /// Errors  `config` for a loss that is not a 0-dim tensor.
  template <class Batch>
  Loss loss_of(const Batch& batch) {
    const TraceSpan span{"forward"};
    [[maybe_unused]] const auto scope = precision_->forward_scope(device_.type());
    std::mutex mutex;                                    // a strategy may compute parts of a batch in several threads
    c10::SmallVector<std::vector<NamedSum>, 1> metrics;  // one for each part
    auto sum = strategy_->forward(*model_, input(batch), [&](auto& model, auto& run, const auto& own_batch) {
      auto part = compute_loss(model, run, own_batch);
      check_sum(part.sum);
      {
        const std::lock_guard lock{mutex};
        metrics.push_back(std::move(part.metrics));
        if (part.sum.requires_grad() && !std::exchange(has_looked_at_leaves_, true)) warn_of_leaf(part.sum, model);
      }
      // Micro-batches are added up in this type, and the number of targets has to fit into it.
      return at::isReducedFloatingType(part.sum.scalar_type()) ? part.sum.to(at::kFloat) : part.sum;
    });
    return {std::move(sum), join_metrics(metrics)};
  }

  /// Computes the gradients of the micro-batches, through `captured` if that is not null. Adds their losses and metrics
  /// to `step`. Returns 1 if a gradient is not finite, else 0; undefined where the loss is not scaled. `anomalies`
  /// checks the losses if it is not null.
  ///
  /// Shapes  0-dim.
  /// Ranks   Collective.
  template <std::ranges::forward_range Batches>
  at::Tensor run(const Batches& batches, StepFacts& facts, LastStep& step, CapturedStep* captured,
                 const AnomalyDetector* anomalies = nullptr) {
    if (captured == nullptr) return plain(batches, facts, step, anomalies);
    strategy_->trainable().check_owned(Freezing::refused);  // a replay would train a parameter that is frozen now
    captured->stay_plain();
    if (std::ranges::distance(batches) != 1) return plain(batches, facts, step);
    std::array batch{input(*std::ranges::begin(batches))};  // on the device, where plain() finds it too
    captured->choose_way(batch[0]);
    if constexpr (VisitsTensors<std::ranges::range_value_t<Batches>>)
      if (!captured->is_plain()) return through(*captured, batch[0], facts, step);
    return plain(batch, facts, step);
  }

 private:
  template <std::ranges::forward_range Batches>
  at::Tensor plain(const Batches& batches, StepFacts& facts, LastStep& step,
                   const AnomalyDetector* anomalies = nullptr) {
    const auto end = std::ranges::end(batches);
    for (auto next = std::ranges::begin(batches); next != end;) {
      const auto batch = next++;
      strategy_->begin_backward(next == end ? Sync::now : Sync::defer);
      const auto& current = *batch;  // if this throws, the next begin_backward() drops the step
      const auto loss = loss_of(current);
      if (anomalies != nullptr) anomalies->check_loss(loss.sum);
      add_loss(loss, current.num_tokens, step);
      backward(loss.sum, facts.targets());
      strategy_->finish_backward();
    }
    check_unchanged();
    return parameter_step_->unscale();
  }

  template <class Batch>
  at::Tensor through(CapturedStep& captured, Batch& batch, StepFacts& facts, LastStep& step) {
    strategy_->frozen().check_owned();
    check_unchanged();
    const auto& [loss, found_inf] =
        captured.gradients(batch, facts.targets(), [&](const Batch& kept, const at::Tensor& targets) {
          strategy_->begin_backward(Sync::now);
          auto kept_loss = loss_of(kept);
          backward(kept_loss.sum, targets);
          strategy_->finish_backward();
          kept_loss.sum = kept_loss.sum.detach();
          for (auto& metric : kept_loss.metrics) metric.sum = metric.sum.detach();
          return CapturedStep::Result{std::move(kept_loss), parameter_step_->unscale()};
        });
    add_loss(loss, batch.num_tokens, step);
    return found_inf;
  }

  /// Refuses changes of parameters in place, by the model's forward or by the program between two steps, that would be
  /// lost.
  void check_unchanged() const {
    strategy_->trainable().check_unchanged();
    strategy_->frozen().check_unchanged();
  }

  /// The batch as the model computes with it.
  template <class Batch>
  Batch input(const Batch& batch) const {
    if constexpr (CastsInputs<Precision, Batch>)
      return precision_->cast_inputs(batch.to(device_));
    else
      return batch.to(device_);
  }

  /// Adds the loss of a batch, which has `targets` targets, to those of the step.
  static void add_loss(const Loss& loss, std::int64_t targets, LastStep& step) {
    step.metrics.add(loss.metrics, targets);
    step.loss = step.loss.defined() ? step.loss + loss.sum.detach() : loss.sum.detach();
  }
  static void check_sum(const at::Tensor& sum) {
    const std::string advice = "return {sum}, the sum of the losses of all targets of the batch as a 0-dim tensor";
    if (!sum.defined()) throw Error{Errc::config, "the model's forward() has returned no loss: " + advice};
    if (sum.dim() > 0)
      throw Error{Errc::config,
                  "the model's forward() has returned a loss of the sizes " + c10::str(sum.sizes()) + ": " + advice};
  }
  void warn_of_leaf(const at::Tensor& loss, const torch::nn::Module& model) const {
    if (const auto leaf = detail::unregistered_leaf(loss, model); leaf.defined())
      log_.info("warning: the loss depends on a tensor " + c10::str(leaf.sizes()) +
                " that requires a gradient and is no parameter of the model, so that it is neither trained nor saved: "
                "register it by register_parameter(), or its module by register_module(); detach() what is to stay as "
                "it is");
  }
  void backward(const at::Tensor& loss, const at::Tensor& targets) {
    if (!loss.requires_grad())
      throw Error{Errc::config,
                  "the loss does not depend on a parameter that trains: it was detached, or computed under a "
                  "NoGradGuard or with frozen parameters only"};
    const TraceSpan span{"backward"};
    loss.backward(parameter_step_->scaled(StepFacts::seed(loss, targets, world_size_)));
  }

  Model* model_;
  const Precision* precision_;
  Strategy* strategy_;
  ParameterStep<Optimizer, Precision, Strategy>* parameter_step_;
  at::Device device_;
  int world_size_;
  Log log_;
  bool has_looked_at_leaves_ = false;
};

}  // namespace ddpxx
