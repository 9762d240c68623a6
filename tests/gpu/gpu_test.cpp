// What only a GPU can show: collectives and strategies over NCCL, copies on streams of their own, steps in which the
// host waits for nothing, and memory that does not grow. Without a GPU each test is skipped.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <typeinfo>
#include <utility>
#include <vector>

#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Type.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/meeting.hpp>
#include <ddpxx/comm/nccl.hpp>
#include <ddpxx/comm/wait_clock.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/nn/add_norm.hpp>
#include <ddpxx/nn/bias_gelu.hpp>
#include <ddpxx/nn/biased_linear.hpp>
#include <ddpxx/nn/chunked_cross_entropy.hpp>
#include <ddpxx/nn/concept.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/observer.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/parallel/copy_stream.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/precision/low_precision.hpp>
#include <ddpxx/snapshot/shard.hpp>
#include <ddpxx/snapshot/state_slice.hpp>
#include <ddpxx/train/cuda_graph.hpp>
#include <ddpxx/train/gpu_memory.hpp>
#include <ddpxx/train/train_step.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../error_of.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::gpu_test {
namespace {

const at::Device kGPU{at::kCUDA, 0};

class OnGPU : public testing::Test {
 protected:
  void SetUp() override {
    if (!at::globalContext().hasCUDA()) GTEST_SKIP() << "there is no GPU that LibTorch can use";
  }
};
using Nccl = OnGPU;
using Steps = OnGPU;
using Memory = OnGPU;
using Fused = OnGPU;
using OffloadedFSDP = OnGPU;
using Graph = OnGPU;
using Snapshots = OnGPU;

/// A group of one rank that has an NCCL communicator; NCCL does not allow two ranks on one GPU.
Group nccl_group() {
  constexpr std::chrono::seconds kLimit{60};
  return connect_nccl({c10::make_intrusive<c10d::HashStore>(), "", 0, 1, kLimit, kLimit}, kGPU);
}

struct Tokens {
  std::int64_t size() const { return 512; }
  Batch batch(std::span<const std::int64_t> indices) const {
    const auto start = at::tensor(std::vector<std::int64_t>{indices.begin(), indices.end()}, at::kLong).unsqueeze(1);
    const auto ids = (start * 7 + at::arange(13, at::kLong) * (start % 3 + 1)) % 17;
    return {ids.narrow(1, 0, 12), ids.narrow(1, 1, 12), ids.size(0) * 12};
  }
};

template <class Strategy>
using Train = Trainer<GPT, Tokens, AdamW, Float32, Strategy>;

const GPTConfig kPlainModel{.n_layer = 3, .n_head = 2, .n_embd = 32, .dropout = 0.0};
const GPTConfig kFusedModel{.n_layer = 3, .n_head = 2, .n_embd = 32, .dropout = 0.0, .fused = true};

std::shared_ptr<GPT> make_model(const GPTConfig& sizes = kPlainModel) {
  at::manual_seed(3);
  const auto model = std::make_shared<GPT>(sizes, 17, 12);
  model->to(kGPU);
  return model;
}

template <class Strategy>
typename Train<Strategy>::Config config(std::int64_t steps) {
  typename Train<Strategy>::Config config;
  config.batch_size = 8;
  config.training.max_steps = steps;
  config.training.max_epochs = 0;
  config.training.seed = 5;
  return config;
}

TEST_F(Nccl, CarriesEachCollectiveInEachType) {
  auto group = nccl_group();
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong, at::kByte}) {
    SCOPED_TRACE(toString(type));
    const auto given = at::arange(64, at::TensorOptions{kGPU}.dtype(at::kLong)).to(type);
    const auto same = [&](const at::Tensor& tensor) { return at::equal(tensor, given); };
    auto reduced = given.clone();
    all_reduce(reduced, group);
    EXPECT_TRUE(same(reduced));
    auto gathered = at::zeros_like(given), scattered = at::zeros_like(given), exchanged = at::zeros_like(given);
    all_gather(gathered, given, group);
    EXPECT_TRUE(same(gathered));
    reduce_scatter(scattered, given, group);
    EXPECT_TRUE(same(scattered));
    all_to_all(exchanged, given, {64}, {64}, group);
    EXPECT_TRUE(same(exchanged));
    auto sent = given.clone();
    broadcast(sent, group, 0);
    EXPECT_TRUE(same(sent));
    all_gather(sent, sent, group);
    EXPECT_TRUE(same(sent)) << "in place";
  }
  for (const auto type : {at::kBool, at::kShort, at::kComplexFloat}) {
    SCOPED_TRACE(toString(type));
    const auto given = at::arange(64, at::TensorOptions{kGPU}.dtype(at::kLong)).to(type);
    auto gathered = at::zeros_like(given), sent = given.clone();
    all_gather(gathered, given, group);
    broadcast(sent, group, 0);
    EXPECT_TRUE(at::equal(gathered, given) && at::equal(sent, given));
  }
  auto turned = at::rand({8, 4}, kGPU).t();
  const auto before = turned.clone();
  all_reduce(turned, group);
  broadcast(turned, group, 0);
  EXPECT_TRUE(at::equal(turned, before));
  barrier(group);
  group.leave();
}

template <class Strategy>
std::vector<at::Tensor> trained(Group& group, const typename Strategy::Config& strategy = {}) {
  const auto model = make_model();
  auto settings = config<Strategy>(20);
  settings.strategy = strategy;
  Train<Strategy>{group, model, std::make_shared<const Tokens>(), settings}.fit();
  std::vector<at::Tensor> values;
  for (const auto& parameter : model->parameters()) values.push_back(parameter.detach().cpu());
  return values;
}

template <class Strategy>
void expect_as_single_device(Group& nccl, const typename Strategy::Config& strategy = {}) {
  SCOPED_TRACE(c10::demangle(typeid(Strategy).name()));
  Group alone{{}, {}, kGPU};
  const auto expected = trained<SingleDevice>(alone), got = trained<Strategy>(nccl, strategy);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::allclose(got[i], expected[i], 1e-4, 1e-4)) << i;
}

TEST_F(Nccl, TrainsAsASingleDevice) {
  auto group = nccl_group();
  expect_as_single_device<DDP>(group);
  expect_as_single_device<ZeRO2>(group);
  expect_as_single_device<FSDP>(group);
  group.leave();
}

constexpr std::int64_t kLate = 200'000'000;  ///< Cycles: about a tenth of a second.

TEST_F(OffloadedFSDP, CopiesAreBehindTheComputationAndBeforeTheHostAndTheNextUseOfTheirMemory) {
  CopyStream copies{kGPU};
  const auto pinned = at::zeros({1 << 20}, at::TensorOptions{at::kCPU}.pinned_memory(true));
  const auto values = at::zeros({1 << 20}, kGPU);
  at::cuda::sleep(kLate);
  values.fill_(1.0);
  const auto end = copies.run([&] {
    at::cuda::sleep(kLate);
    at::Tensor{pinned}.copy_(values, /*non_blocking=*/true);
  });
  EXPECT_EQ(pinned.sum().item<double>(), 0) << "the host waited: this test would see no race";
  copies.order_after(end);
  values.fill_(2.0);
  copies.wait();
  EXPECT_TRUE(at::equal(pinned, at::ones_like(pinned)));
}

TEST_F(Snapshots, HaveTheirValuesWhenTheyAreStaged) {
  const auto values = at::zeros({1 << 20}, kGPU), more = at::zeros({1 << 10}, kGPU);
  Shard shard{"file", {whole_slice("values", values), whole_slice("more", more)}};
  at::cuda::sleep(kLate);
  values.fill_(1.0);
  more.fill_(1.0);
  at::Tensor buffer;
  shard.stage(buffer);
  EXPECT_TRUE(buffer.is_pinned());
  EXPECT_TRUE(at::equal(buffer.view(at::kFloat), at::ones({(1 << 20) + (1 << 10)})));
}

/// While the object lives, the stream that computes and those of the pool are late by turns.
class DelayedStreams {
 public:
  DelayedStreams() : thread_{[this] { delay(); }} {}
  DelayedStreams(const DelayedStreams&) = delete;
  DelayedStreams& operator=(const DelayedStreams&) = delete;
  ~DelayedStreams() {
    ended_ = true;
    thread_.join();
  }

 private:
  void delay() {
    std::vector streams{c10::cuda::getDefaultCUDAStream(0)};
    for (int i = 0; i < 32; ++i) streams.push_back(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, 0));
    for (bool computing = false; !ended_; computing = !computing) {
      for (std::size_t i = computing ? 0 : 1; i < (computing ? 1 : streams.size()); ++i) {
        const c10::cuda::CUDAStreamGuard guard{streams[i]};
        at::cuda::sleep(kLate / 200);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  }

  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

TEST_F(OffloadedFSDP, TakesItsCourseWhileStreamsAreLate) {
  auto group = nccl_group();
  const FSDPConfig offloaded{.unit_bytes = 0, .offload = Offload::cpu};
  expect_as_single_device<FSDP>(group, offloaded);
  const DelayedStreams late;
  for (int attempt = 0; attempt < 3; ++attempt) expect_as_single_device<FSDP>(group, offloaded);
  group.leave();
}

/// While the object lives, a call that makes the host wait for the GPU throws.
class NoWaiting {
 public:
  NoWaiting() { c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR); }
  NoWaiting(const NoWaiting&) = delete;
  NoWaiting& operator=(const NoWaiting&) = delete;
  ~NoWaiting() { c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED); }
};

template <class Strategy>
void expect_no_waiting(Group& group, double spike_factor = 0) {
  SCOPED_TRACE(c10::demangle(typeid(Strategy).name()));
  const auto model = make_model();
  auto settings = config<Strategy>(20);
  settings.training.spike_factor = spike_factor;
  Train<Strategy> trainer{group, model, std::make_shared<const Tokens>(), settings};
  for (int step = 0; step < 5; ++step) trainer.step();
  {
    const NoWaiting no_waiting;
    EXPECT_NO_THROW(for (int step = 0; step < 6; ++step) trainer.step());
  }
  trainer.close();
}

TEST_F(Steps, WaitForNothing) {
  {
    const NoWaiting no_waiting;
    EXPECT_THROW(at::ones({1}, kGPU).item(), c10::Error) << "this test would see no waiting";
  }
  Group alone{{}, {}, kGPU};
  expect_no_waiting<SingleDevice>(alone);
  auto group = nccl_group();
  expect_no_waiting<DDP>(group);
  expect_no_waiting<ZeRO2>(group);
  expect_no_waiting<FSDP>(group);
  group.leave();
}

TEST_F(Steps, ThatMayBeLeftOutForTheirGradientsWaitForNothing) {
  Group alone{{}, {}, kGPU};
  expect_no_waiting<SingleDevice>(alone, 4);
  auto group = nccl_group();
  expect_no_waiting<FSDP>(group, 4);
  group.leave();
}

/// A weight whose root has no finite derivative where the weight is 0.
struct Root : torch::nn::Module {
  Root() { weight = register_parameter("weight", torch::zeros({4})); }
  Loss forward(const Batch& batch) { return {(weight.sqrt() * 0 * batch.inputs).sum()}; }
  at::Tensor weight;
};

TEST_F(Steps, NameTheOperationThatMakesNaNInAutogradsThread) {
  Group alone{{}, {}, kGPU};
  const auto model = std::make_shared<Root>();
  model->to(kGPU);
  TrainStep<Root, AdamW, Float32, SingleDevice> step{alone, model, {.detect_anomaly = true}};
  const Batch batch{at::ones({4}, kGPU), at::ones({4}, kGPU), 4};
  EXPECT_THAT(error_of([&] { step.step(std::vector{batch}); }), testing::HasSubstr(" of SqrtBackward0 has made NaN"));
}

TEST_F(Steps, CountAWaitForAsLongAsTheStreamStandsStill) {
  WaitClock clock{kGPU};
  clock.start();
  clock.count([] {});
  c10::cuda::device_synchronize();
  const double before = clock.milliseconds();
  clock.count([] { at::cuda::sleep(100'000'000); });  // some 50 ms
  c10::cuda::device_synchronize();
  EXPECT_GT(clock.milliseconds(), before + 10);
  const double slept = clock.milliseconds();
  clock.count([] {});  // uses the events of an earlier wait again
  c10::cuda::device_synchronize();
  EXPECT_LT(clock.milliseconds(), slept + 10);
}

TEST_F(Steps, OfAProfileShowTheirKernels) {
  const TemporaryFolder folder;
  Group alone{{}, {}, kGPU};
  auto settings = config<SingleDevice>(6);
  settings.training.profile = folder.path().string();
  settings.training.profile_after = 2;
  settings.training.profile_steps = 2;
  Train<SingleDevice> trainer{alone, make_model(), std::make_shared<const Tokens>(), settings};
  trainer.fit();
  std::ifstream file{folder / "rank-0.steps-3-4.pt.trace.json"};
  const auto trace = nlohmann::json::parse(file);
  int kernels = 0;
  for (const auto& event : trace.at("traceEvents")) kernels += event.value("cat", "") == "kernel" ? 1 : 0;
  EXPECT_GT(kernels, 20);
}

template <class Strategy>
void expect_flat_memory(Group& group) {
  SCOPED_TRACE(c10::demangle(typeid(Strategy).name()));
  const auto model = make_model();
  Train<Strategy> trainer{group, model, std::make_shared<const Tokens>(), config<Strategy>(200)};
  for (int step = 0; step < 5; ++step) trainer.step();
  const auto before = gpu_memory(kGPU).value();
  for (int step = 5; step < 200; ++step) trainer.step();
  const auto after = gpu_memory(kGPU).value();
  EXPECT_EQ(after.reserved_bytes, before.reserved_bytes);
  EXPECT_EQ(after.peak_bytes, before.peak_bytes);
  EXPECT_EQ(after.retries, 0);
  trainer.close();
}

TEST_F(Memory, IsFlatAfterFiveSteps) {
  auto group = nccl_group();
  expect_flat_memory<DDP>(group);
  expect_flat_memory<ZeRO2>(group);
  expect_flat_memory<FSDP>(group);
  group.leave();
}

/// Results and gradients of `work` for these inputs on a device.
template <class Work>
std::vector<at::Tensor> results_on(at::Device device, const std::vector<at::Tensor>& inputs, const Work& work) {
  std::vector<at::Tensor> own;
  for (const auto& input : inputs) own.push_back(input.to(device).detach().requires_grad_());
  auto found = work(own);
  at::Tensor total = at::zeros({}, device);
  for (const auto& result : found) total = total + (result.to(at::kFloat) * result.to(at::kFloat)).sum();
  total.backward();
  for (const auto& input : own) found.push_back(input.grad());
  for (auto& tensor : found) tensor = tensor.detach().to(at::kCPU, at::kFloat);
  return found;
}

template <class Work>
void expect_equal_devices(const std::vector<at::Tensor>& inputs, double tolerance, const Work& work) {
  const std::vector<at::Tensor> got = results_on(kGPU, inputs, work), expected = results_on(at::kCPU, inputs, work);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto scale = expected[i].abs().max().item<double>();
    EXPECT_LE((got[i] - expected[i]).abs().max().item<double>(), tolerance * (scale + 1)) << i;
  }
}

TEST_F(Fused, KernelsAreEqualToTheirTwins) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const auto& [rows, width] : {std::pair{1, 1}, std::pair{7, 33}, std::pair{1500, 768}, std::pair{3, 4096}}) {
      SCOPED_TRACE(std::string{toString(type)} + " " + std::to_string(rows) + " x " + std::to_string(width));
      at::manual_seed(1);
      const double tolerance = type == at::kFloat ? 1e-4 : 2e-2;
      const auto x = at::randn({rows, width}), y = at::randn({rows, width}).to(type);
      const auto weight = at::randn({width}), bias = at::randn({width});
      for (const auto& residual : {x, x.to(type)})
        expect_equal_devices({residual, y, weight, bias}, tolerance, [](const auto& inputs) {
          const auto both = add_norm(inputs[0], inputs[1], inputs[2], inputs[3]);
          return std::vector{both.sum, both.normed};
        });
      expect_equal_devices({y, weight}, tolerance,
                           [](const auto& inputs) { return std::vector{layer_norm(inputs[0], inputs[1], {})}; });
      expect_equal_devices({y, weight, bias}, tolerance,
                           [](const auto& inputs) { return std::vector{layer_norm(inputs[0], inputs[1], inputs[2])}; });
      for (const auto& gain : {weight, weight.to(type)})
        expect_equal_devices({y, gain, bias}, tolerance, [](const auto& inputs) {
          const auto both = residual_norm(inputs[0], inputs[1], inputs[2]);
          return std::vector{both.sum, both.normed};
        });
      const auto few = at::randn({rows, 16}).to(type), matrix = at::randn({3 * width, 16}).to(type);
      expect_equal_devices({few, matrix, at::randn({3 * width}).to(type)}, tolerance, [](const auto& inputs) {
        auto found = biased_linear_parts(inputs[0], inputs[1], inputs[2], 3);
        found.push_back(biased_linear(inputs[0], inputs[1], inputs[2]));
        return found;
      });
      for (const char* approximate : {"tanh", "none"})
        expect_equal_devices({y, bias}, tolerance, [approximate](const auto& inputs) {
          return std::vector{bias_gelu(inputs[0], inputs[1], approximate)};
        });
    }
}

/// The gradients of the parts are bfloat16, and that of the bias is float32.
TEST_F(Fused, KernelsOfBiasedLinearAreEqualToTheirTwinsInAutocast) {
  for (const auto& [rows, width] : {std::pair{7, 33}, std::pair{1500, 768}, std::pair{5000, 64}}) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(width));
    at::manual_seed(4);
    const auto x = at::randn({rows, 16}), matrix = at::randn({3 * width, 16}), bias = at::randn({3 * width});
    expect_equal_devices({x, matrix, bias}, 2e-2, [](const auto& inputs) {
      const auto scope = AutocastBF16{{}}.forward_scope(inputs[0].device().type());
      auto found = biased_linear_parts(inputs[0], inputs[1], inputs[2], 3);
      found.push_back(biased_linear(inputs[0], inputs[1], inputs[2]));
      EXPECT_EQ(found[0].scalar_type(), at::kBFloat16);
      return found;
    });
  }
}

TEST_F(Fused, ChunkedCrossEntropyIsEqualToThePlainOne) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const std::int64_t vocabulary : {101, 1000, 50304}) {
      SCOPED_TRACE(std::string{toString(type)} + " " + std::to_string(vocabulary));
      at::manual_seed(2);
      const auto hidden = at::randn({300, 64}, kGPU).to(type), weight = at::randn({vocabulary, 64}, kGPU).to(type);
      auto targets = at::randint(vocabulary, {300}, at::TensorOptions{kGPU}.dtype(at::kLong));
      targets[7] = -1;
      const auto run = [&](bool chunked) {
        const auto own = hidden.detach().requires_grad_(), own_weight = weight.detach().requires_grad_();
        const auto loss = chunked ? chunked_cross_entropy(own, own_weight, targets, 128)
                                  : at::cross_entropy_loss(at::linear(own, own_weight).to(at::kFloat), targets, {},
                                                           at::Reduction::Sum, -1);
        loss.backward();
        return std::vector{loss.detach(), own.grad().to(at::kFloat), own_weight.grad().to(at::kFloat)};
      };
      const auto got = run(true), expected = run(false);
      const double tolerance = type == at::kFloat ? 1e-4 : 2e-2;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const auto scale = expected[i].abs().max().item<double>();
        EXPECT_LE((got[i] - expected[i]).abs().max().item<double>(), tolerance * scale) << i;
      }
    }
}

TEST_F(Fused, StepsWaitForNothingAndKeepTheWeights) {
  const auto trained_weights = [](bool fused) {
    at::manual_seed(3);
    const auto model = std::make_shared<GPT>(
        GPTConfig{
            .n_layer = 3, .n_head = 2, .n_embd = 32, .dropout = 0.0, .loss_chunk = fused ? 30 : 0, .fused = fused},
        17, 12);
    model->to(kGPU);
    Group alone{{}, {}, kGPU};
    Train<SingleDevice> trainer{alone, model, std::make_shared<const Tokens>(), config<SingleDevice>(20)};
    for (int step = 0; step < 5; ++step) trainer.step();
    {
      const NoWaiting no_waiting;
      EXPECT_NO_THROW(for (int step = 0; step < 6; ++step) trainer.step());
    }
    trainer.close();
    std::vector<at::Tensor> values;
    for (const auto& parameter : model->parameters()) values.push_back(parameter.detach().cpu());
    return values;
  };
  const auto got = trained_weights(true), expected = trained_weights(false);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::allclose(got[i], expected[i], 1e-3, 1e-3)) << i;
}

/// The losses and the weights of a training on one GPU, in which a step is captured if `graph` is true. The last batch
/// of an epoch is a short one, and the learning rate changes with each step.
struct GraphCourse {
  std::vector<double> losses;
  std::vector<at::Tensor> weights;
};
template <class Precision>
GraphCourse graph_course(const GPTConfig& sizes, bool graph) {
  using Train = Trainer<GPT, Tokens, AdamW, Precision, SingleDevice>;
  typename Train::Config settings;
  settings.batch_size = 24;
  settings.training = {.max_steps = 60, .max_epochs = 0, .seed = 5, .cuda_graph = graph};
  settings.optimizer.schedule = Schedule::cosine;
  settings.optimizer.warmup_steps = 10;
  settings.optimizer.decay_steps = 60;
  class Losses : public Observer {
   public:
    explicit Losses(std::vector<double>& losses) : losses_{&losses} {}
    std::string name() const override { return "losses"; }
    Verdict on_step(const StepDone& step) override {
      losses_->push_back(step.loss);
      return Verdict::go_on;
    }

   private:
    std::vector<double>* losses_;
  };
  GraphCourse course;
  const auto model = make_model(sizes);
  Group alone{{}, {}, kGPU};
  Train trainer{alone, model, std::make_shared<const Tokens>(), settings};
  trainer.add(std::make_shared<Losses>(course.losses));
  trainer.fit();
  for (const auto& parameter : model->parameters()) course.weights.push_back(parameter.detach().cpu());
  return course;
}

template <class Precision>
void expect_same_course_in_a_graph(double tolerance, const GPTConfig& sizes = kPlainModel) {
  const auto expected = graph_course<Precision>(sizes, false), got = graph_course<Precision>(sizes, true);
  ASSERT_EQ(got.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < got.losses.size(); ++i)
    EXPECT_NEAR(got.losses[i], expected.losses[i], tolerance * expected.losses[i]) << "step " << i + 1;
  for (std::size_t i = 0; i < got.weights.size(); ++i)
    EXPECT_TRUE(at::allclose(got.weights[i], expected.weights[i], 10 * tolerance, 10 * tolerance)) << i;
}

TEST_F(Graph, TakesTheCourseOfPlainSteps) {
  expect_same_course_in_a_graph<Float32>(1e-4);
  expect_same_course_in_a_graph<AutocastBF16>(1e-2);
  expect_same_course_in_a_graph<LowPrecision<>>(1e-2);
  expect_same_course_in_a_graph<AutocastFP16>(1e-2);
  expect_same_course_in_a_graph<AutocastBF16>(1e-2, kFusedModel);
}

using GraphStep = TrainStep<GPT, AdamW, Float32, SingleDevice>;

TEST_F(Graph, DrawsNewRandomNumbersInEachReplay) {
  const auto model = std::make_shared<GPT>(GPTConfig{.n_layer = 2, .n_head = 2, .n_embd = 32, .dropout = 0.5}, 17, 12);
  model->to(kGPU);
  Group alone{{}, {}, kGPU};
  GraphStep step{alone, model, {.optimizer = {.learning_rate = 1e-12}, .capture = make_cuda_capture}};
  const auto batch = Tokens{}.batch(std::vector<std::int64_t>{1, 2, 3});
  std::set<double> losses;
  const auto keep = [&](const CompletedStep& done) { losses.insert(done.row.loss); };
  for (int i = 0; i < 20; ++i)
    if (const auto done = step.step(std::span{&batch, 1})) keep(*done);
  step.read_all(keep);
  EXPECT_GT(losses.size(), 15U);
}

TEST_F(Graph, ReplaysWaitForNothingAndTakeNoMemory) {
  const auto model = make_model();
  auto settings = config<SingleDevice>(100);
  settings.training.cuda_graph = true;
  Group alone{{}, {}, kGPU};
  Train<SingleDevice> trainer{alone, model, std::make_shared<const Tokens>(), settings};
  for (int step = 0; step < 8; ++step) trainer.step();
  const auto before = gpu_memory(kGPU).value();
  {
    const NoWaiting no_waiting;
    EXPECT_NO_THROW(for (int step = 0; step < 6; ++step) trainer.step());
  }
  for (int step = 14; step < 60; ++step) trainer.step();
  EXPECT_EQ(gpu_memory(kGPU).value().reserved_bytes, before.reserved_bytes);
  trainer.close();
}

/// A model in whose forward pass the host waits for the loss.
class Waiting : public GPT {
 public:
  using GPT::GPT;
  template <class Run, class Batch>
  Loss forward(Run& run, const Batch& batch) {
    auto loss = GPT::forward(run, batch);
    last_loss = loss.sum.template item<double>();
    return loss;
  }
  double last_loss = 0;
};

TEST_F(Graph, OfAModelThatWaitsIsRefusedAndTheGPUGoesOn) {
  const auto model = std::make_shared<Waiting>(GPTConfig{.n_layer = 1, .n_head = 2, .n_embd = 32}, 17, 12);
  model->to(kGPU);
  Group alone{{}, {}, kGPU};
  TrainStep<Waiting, AdamW, Float32, SingleDevice> step{alone, model, {.capture = make_cuda_capture}};
  const auto batch = Tokens{}.batch(std::vector<std::int64_t>{1, 2, 3});
  try {
    for (int i = 0; i < 6; ++i) step.step(std::span{&batch, 1});
    FAIL() << "a step that waits was captured";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config) << error.what();
    EXPECT_EQ(step.steps_done(), 3);
  }
  EXPECT_EQ(at::ones({3}, kGPU).sum().item<double>(), 3);
  EXPECT_NO_THROW(at::rand({3}, kGPU).sum().item<double>());
}

TEST_F(Memory, OfABatchIsPinnedOnItsWay) {
  const Batch batch = Tokens{}.batch(std::vector<std::int64_t>{1, 2, 3});
  const Batch turned{at::rand({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast), at::rand({4, 6}).t(), 0};
  const auto there = [&] {
    const NoWaiting no_waiting;
    EXPECT_NO_THROW(batch.to(kGPU));
    return turned.to(kGPU);
  }();
  EXPECT_EQ(there.inputs.strides(), turned.inputs.strides());
  EXPECT_EQ(there.targets.strides(), turned.targets.strides());
  EXPECT_TRUE(at::equal(there.inputs.cpu(), turned.inputs) && at::equal(there.targets.cpu(), turned.targets));
}

TEST_F(Steps, OfTheChunkedLossInFloat64WaitForNothing) {
  const auto hidden = at::rand({40, 8}, at::TensorOptions{kGPU}.dtype(at::kDouble)).requires_grad_();
  const auto weight = at::rand({11, 8}, hidden.options()).requires_grad_();
  auto targets = at::arange(40, at::TensorOptions{kGPU}.dtype(at::kLong)) % 11;
  targets.masked_fill_(targets.eq(3), -1);
  const NoWaiting no_waiting;
  EXPECT_NO_THROW(chunked_cross_entropy(hidden, weight, targets, 16).backward());
}

}  // namespace
}  // namespace ddpxx::gpu_test
