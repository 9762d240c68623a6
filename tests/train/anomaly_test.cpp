// training.detect_anomaly: the operation that makes NaN of other numbers ends the run, and is named.
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ThreadLocalState.h>
#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/optim/sgd.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/anomaly_detector.hpp>
#include <ddpxx/train/train_step.hpp>

#include "../error_of.hpp"
#include "training_run.hpp"

namespace ddpxx::anomaly_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// A linear layer, and an operation on what it returns. Its weights are ones.
struct Net : torch::nn::Module {
  using Operation = std::function<at::Tensor(const at::Tensor&)>;
  explicit Net(Operation last = [](const at::Tensor& x) { return x; }) : operation{std::move(last)} {
    const c10::NoGradGuard no_grad;
    for (at::Tensor& parameter : layer->parameters()) parameter.fill_(1);
  }
  Loss forward(const Batch& batch) { return {operation(layer(batch.inputs)).sum()}; }

  torch::nn::Linear layer{register_module("layer", torch::nn::Linear{torch::nn::LinearOptions{2, 1}.bias(false)})};
  Operation operation;
};

Batch batch_of(double first, double second) {
  return {torch::tensor({{first, second}}, torch::kFloat), torch::zeros({1, 1}), 1};
}

/// The text of the error in one step of `net` on `batch`.
std::string error_in_step(const std::shared_ptr<Net>& net, const Batch& batch) {
  Group alone;
  TrainStep<Net, SGD, Float32, SingleDevice> step{alone, net, {.detect_anomaly = true}};
  return error_of([&] { step.step(std::vector{batch}); });
}

TEST(DetectAnomaly, NamesTheOperationOfTheForwardPass) {
  const auto net = std::make_shared<Net>([](const at::Tensor& x) { return x.log(); });
  EXPECT_THAT(error_in_step(net, batch_of(-1, -2)),
              AllOf(HasSubstr("aten::log of the forward pass has made NaN of numbers without NaN"),
                    HasSubstr("given=[1, 1] Float from -3 to -3"), HasSubstr("last_parameter=layer.weight"),
                    HasSubstr("step=1"), Not(HasSubstr("first_infinite_number"))));
}

TEST(DetectAnomaly, NamesTheOperationOfTheBackwardPass) {
  const auto net = std::make_shared<Net>([](const at::Tensor& x) { return x.sqrt() * 0; });
  EXPECT_THAT(error_in_step(net, batch_of(1, -1)), HasSubstr(" of SqrtBackward0 has made NaN"))
      << "the gradient of a root at 0 is 0 divided by 0";
}

TEST(DetectAnomaly, NamesTheOperationThatHasMadeTheFirstInfiniteNumber) {
  const auto net = std::make_shared<Net>([](const at::Tensor& x) {
    const auto mask = at::zeros_like(x).masked_fill(at::zeros_like(x) == 0, -std::numeric_limits<double>::infinity());
    return (x * 0).sqrt() + mask.exp();
  });
  EXPECT_THAT(error_in_step(net, batch_of(1, 1)),
              AllOf(HasSubstr("aten::mul of MulBackward1 has made NaN"),
                    HasSubstr("first_infinite_number=by aten::div of SqrtBackward0")))
      << "a mask is no anomaly";
}

TEST(DetectAnomaly, SeesTheOperationsOfAutogradsOwnThreads) {
  // On a GPU the backward pass runs in another thread, with the state of the thread that has called it.
  Net net;
  AnomalyDetector detector{net};
  const auto watch = detector.watch();
  std::string error;
  std::thread{[&, state = at::ThreadLocalState{}] {
    const at::ThreadLocalStateGuard guard{state};
    error = error_of([] { at::full({2}, -1.0).log(); });
  }}.join();
  EXPECT_THAT(error, HasSubstr("aten::log of the forward pass has made NaN"));
}

TEST(DetectAnomaly, SaysWhatAnOperationInPlaceWasGiven) {
  const auto net = std::make_shared<Net>([](const at::Tensor& x) { return (x * 1).log_(); });
  EXPECT_THAT(error_in_step(net, batch_of(-1, -2)), AllOf(HasSubstr("aten::log_ of the forward pass has made NaN"),
                                                          HasSubstr("given=the memory of its result")));
}

TEST(DetectAnomaly, NamesAParameterThatHoldsNaN) {
  const auto net = std::make_shared<Net>();
  {
    const c10::NoGradGuard no_grad;
    net->layer->weight.fill_(kNan);
  }
  EXPECT_THAT(error_in_step(net, batch_of(1, 1)), HasSubstr("because parameter layer.weight holds NaN"));
}

TEST(DetectAnomaly, SaysThatTheBatchMayHoldNaN) {
  EXPECT_THAT(error_in_step(std::make_shared<Net>(), batch_of(kNan, 1)),
              AllOf(HasSubstr("the loss is NaN"), HasSubstr("look for NaN in the batch"), Not(HasSubstr("aten::"))));
}

TEST(DetectAnomaly, AcceptsInfiniteNumbers) {
  const auto net = std::make_shared<Net>([](const at::Tensor& x) {
    return at::softmax(at::cat({x, at::full_like(x, -std::numeric_limits<double>::infinity())}, 1), 1);
  });
  EXPECT_EQ(error_in_step(net, batch_of(1, 1)), "no error");
}

TEST(DetectAnomaly, AcceptsMemoryBeforeItIsWritten) {
  // LibTorch then fills new memory with NaN.
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  const auto net = std::make_shared<Net>([](const at::Tensor& x) {
    const auto raw = at::empty_like(x);
    EXPECT_TRUE(raw.isnan().all().item<bool>());
    return raw.zero_() + x;
  });
  EXPECT_EQ(error_in_step(net, batch_of(1, 1)), "no error");
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
}

TEST(DetectAnomaly, LeavesTheStepToBeTriedAgain) {
  Group alone;
  const auto net = std::make_shared<Net>([](const at::Tensor& x) { return x.log(); });
  TrainStep<Net, SGD, Float32, SingleDevice> step{alone, net, {.detect_anomaly = true}};
  EXPECT_THAT(error_of([&] { step.step(std::vector{batch_of(-1, -2)}); }), HasSubstr("aten::log"));
  EXPECT_TRUE(step.can_try_again());
  EXPECT_NO_THROW(step.step(std::vector{batch_of(1, 2)}));
  EXPECT_EQ(step.steps_done(), 1);
}

TEST(DetectAnomaly, TellsOfItWhereALossIsNotFinite) {
  Group alone;
  const auto net = std::make_shared<Net>([](const at::Tensor& x) { return x.log(); });
  TrainStep<Net, SGD, Float32, SingleDevice> step{alone, net, {}};
  step.step(std::vector{batch_of(-1, -2)});
  EXPECT_THAT(error_of([&] { step.read_all([](const CompletedStep&) {}); }),
              HasSubstr("training.detect_anomaly=true names the operation"));
}

TEST(DetectAnomaly, IsRefusedWithACudaGraph) {
  TrainStepConfig<SGD, Float32, SingleDevice> config;
  config.detect_anomaly = true;
  config.capture = [](at::Device) { return nullptr; };
  EXPECT_THAT(error_of([&] { TrainStep<Net, SGD, Float32, SingleDevice>::check(config); }),
              AllOf(HasSubstr("training.detect_anomaly"), HasSubstr("set training.cuda_graph=false")));
}

/// The losses and the norms of four steps.
template <class Strategy, class Precision>
std::vector<double> numbers_of_steps(Group& group, bool detect_anomaly) {
  std::vector<double> numbers;
  torch::manual_seed(3);
  const auto model = std::make_shared<GPT>(GPTConfig{.n_layer = 2, .n_head = 2, .n_embd = 16, .dropout = 0.1}, 11, 8);
  TrainStep<GPT, SGD, Precision, Strategy> step{
      group, model, {.grad_norm_clip = steps_in_backward<Strategy> ? 0.0 : 1.0, .detect_anomaly = detect_anomaly}};
  const auto note = [&](const CompletedStep& done) {
    numbers.push_back(done.row.loss);
    numbers.push_back(done.row.grad_norm);
  };
  for (std::int64_t i = 0; i < 4; ++i) {
    const std::vector<std::int64_t> indices{group.rank() + 4 * i, group.rank() + 4 * i + 2};
    if (const auto done = step.step(std::vector{Tokens{}.batch(indices)})) note(*done);
  }
  step.read_all(note);
  return numbers;
}

template <class Strategy, class Precision = Float32>
void expect_equal_numbers() {
  SCOPED_TRACE(c10::demangle(typeid(Strategy).name()));
  spawn_ranks(2, [](Group& group) {
    const auto watched = numbers_of_steps<Strategy, Precision>(group, true);
    EXPECT_EQ(watched, (numbers_of_steps<Strategy, Precision>(group, false)));
    EXPECT_EQ(watched.size(), 8U);
  });
}

TEST(DetectAnomaly, ChangesNoNumberOfAHealthyRun) {
  expect_equal_numbers<DDP>();
  expect_equal_numbers<DDP, AutocastBF16>();
  expect_equal_numbers<ZeRO2>();
  expect_equal_numbers<FSDP>();
  expect_equal_numbers<Recompute<FSDP>>();
  expect_equal_numbers<StepInBackward<DDP>>();
}

}  // namespace
}  // namespace ddpxx::anomaly_test
