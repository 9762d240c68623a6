// tests/train/recorded_capture.hpp — captures steps on a CPU, as a CUDA graph captures them on a GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/intercepted_operations.hpp>
#include <ddpxx/train/step_capture.hpp>

namespace ddpxx {

/// Records the operations of LibTorch with their arguments: tensors by their memory, numbers by their values. A replay
/// calls the kernels alone, and writes each result to where the first one was. No other code runs again, so that a
/// number which the host would compute anew is as wrong here as on a GPU.
class RecordedCapture : public StepCapture {
 public:
  struct Counts {
    std::int64_t runs = 0, captures = 0, replays = 0;
  };
  explicit RecordedCapture(std::shared_ptr<Counts> counts = std::make_shared<Counts>()) : counts_{std::move(counts)} {}

  void run(const std::function<void()>& work) override {
    ++counts_->runs;
    work();
  }

  Replay capture(const std::function<void()>& work) override {
    ++counts_->captures;
    const auto calls = std::make_shared<std::vector<Call>>();
    {
      const InterceptedOperations recording{
          [&](const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
            calls->push_back(record(op, keys, stack));
          }};
      work();
    }
    return [calls, counts = counts_] {
      ++counts->replays;
      const at::AutoDispatchBelowADInplaceOrView no_autograd;
      for (const auto& call : *calls) call.replay();
    };
  }

 private:
  struct Call {
    c10::OperatorHandle op;
    c10::DispatchKeySet keys;
    torch::jit::Stack arguments;
    torch::jit::Stack results;

    void replay() const {
      auto stack = arguments;
      op.redispatchBoxed(keys, &stack);
      for (std::size_t i = 0; i < results.size(); ++i) write(results[i], stack[i]);
    }
  };

  static Call record(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack) {
    if (op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape))
      throw Error{Errc::config, "the host waits for " + op.schema().name()};
    const auto num_arguments = std::ssize(op.schema().arguments());
    Call call{op, keys, {stack.end() - num_arguments, stack.end()}, {}};
    const InterceptedOperations::Pause pause;
    op.redispatchBoxed(keys, &stack);
    call.results = {stack.end() - std::ssize(op.schema().returns()), stack.end()};
    return call;
  }

  static void write(const c10::IValue& where, const c10::IValue& what) {
    if (where.isTensor() && where.toTensor().defined()) {
      if (!where.toTensor().is_alias_of(what.toTensor())) where.toTensor().copy_(what.toTensor());
    } else if (where.isTensorList()) {
      const auto places = where.toTensorVector(), values = what.toTensorVector();
      for (std::size_t i = 0; i < places.size(); ++i) write(places[i], values[i]);
    }
  }

  std::shared_ptr<Counts> counts_;
};

/// What TrainStep::Config::capture is set to.
inline MakeStepCapture record_steps(
    std::shared_ptr<RecordedCapture::Counts> counts = std::make_shared<RecordedCapture::Counts>()) {
  return [counts](at::Device) { return std::make_unique<RecordedCapture>(counts); };
}

}  // namespace ddpxx
