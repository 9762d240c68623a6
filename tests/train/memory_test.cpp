// The memory that strategies need: close to theory, constant over steps, and predicted before the run.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/data/batch.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/step_in_backward.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/precision/low_precision.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/memory_plan.hpp>
#include <ddpxx/train/trainer.hpp>

namespace ddpxx::memory_test {
namespace {

/// Counts the memory that all threads of a process, including the backend's, take from LibTorch's allocator.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    if (size == 0) return {nullptr, nullptr, &free, c10::kCPU};
    auto* block = static_cast<std::byte*>(std::aligned_alloc(kHeader, (size + 2 * kHeader - 1) / kHeader * kHeader));
    *reinterpret_cast<std::size_t*>(block) = size;
    const auto now = live.fetch_add(static_cast<std::int64_t>(size)) + static_cast<std::int64_t>(size);
    for (auto most = peak.load(); most < now && !peak.compare_exchange_weak(most, now);) continue;
    return {block + kHeader, block + kHeader, &free, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
  void copy_data(void* to, const void* from, std::size_t size) const override { default_copy_data(to, from, size); }

  /// Installs the allocator permanently, in a process that ends soon.
  static void install() { c10::SetAllocator(c10::kCPU, new CountingAllocator, 200); }
  static inline std::atomic<std::int64_t> live = 0, peak = 0;

 private:
  static constexpr std::size_t kHeader = 64;
  static void free(void* memory) {
    if (memory == nullptr) return;
    auto* block = static_cast<std::byte*>(memory) - kHeader;
    live -= static_cast<std::int64_t>(*reinterpret_cast<std::size_t*>(block));
    std::free(block);
  }
};

/// Sample i is a run of tokens that starts with i.
struct Tokens {
  std::int64_t length = 0;
  std::int64_t vocabulary = 16;
  std::int64_t samples = 0;

  std::int64_t size() const { return samples; }
  Batch batch(std::span<const std::int64_t> indices) const {
    const auto start = at::tensor(std::vector<std::int64_t>{indices.begin(), indices.end()}, at::kLong).unsqueeze(1);
    const auto ids = (start + at::arange(length + 1, at::kLong)) % vocabulary;
    return {ids.narrow(1, 0, length).clone(), ids.narrow(1, 1, length).clone(), ids.size(0) * length};
  }
  Batch some(std::int64_t count) const {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<std::int64_t>(i);
    return batch(indices);
  }
};

struct Sizes {
  std::int64_t layers, width, length, batch;
  std::int64_t vocabulary = 16;

  std::shared_ptr<GPT> model(std::int64_t of_layers) const {
    return std::make_shared<GPT>(GPTConfig{.n_layer = of_layers, .n_head = 4, .n_embd = width, .dropout = 0.0},
                                 vocabulary, length);
  }
  /// Enough samples for a few steps only, because the order of an epoch takes memory too.
  Tokens data(int world_size) const {
    return {.length = length, .vocabulary = vocabulary, .samples = 4 * batch * world_size};
  }
};

template <class Strategy, class Precision>
using Train = Trainer<GPT, Tokens, AdamW, Precision, Strategy>;

template <class Strategy, class Precision = Float32>
auto make_trainer(Group& group, const Sizes& sizes, const typename Strategy::Config& strategy = {},
                  const TrainingConfig& training = {}) {
  typename Train<Strategy, Precision>::Config config;
  config.batch_size = sizes.batch;
  config.training = training;
  config.strategy = strategy;
  return std::make_unique<Train<Strategy, Precision>>(group, sizes.model(sizes.layers),
                                                      std::make_shared<const Tokens>(sizes.data(group.size())), config);
}

/// The bytes that a rank of a real trainer needs; its group sends nothing and so needs no memory.
struct Measured {
  double rest = 0;  ///< Before the first step: parameters, gradients, optimizer state.
  double peak = 0;  ///< In the steps after the first.
};
template <class Strategy, class Precision = Float32>
Measured measure(int world_size, const Sizes& sizes, const typename Strategy::Config& strategy = {},
                 const TrainingConfig& training = {}) {
  LiveBytes live;
  auto group = recording_group(0, world_size, std::make_shared<Recording>());
  Measured measured;
  {
    auto trainer = make_trainer<Strategy, Precision>(group, sizes, strategy, training);
    measured.rest = static_cast<double>(live.current());
    trainer->step();
    live.reset_peak();
    for (int step = 0; step < 2; ++step) trainer->step();
    measured.peak = static_cast<double>(live.peak());
  }
  group.leave();
  return measured;
}

// --- near theory ---

/// 50 million parameters, and a smaller model for tests of four processes; both have almost no activations.
constexpr Sizes kLarge{.layers = 16, .width = 512, .length = 2, .batch = 1};
constexpr Sizes kOverGloo{.layers = 4, .width = 256, .length = 2, .batch = 1};
constexpr int kWorld = 4;

struct Theory {
  double parameters = 0;  ///< the number of parameters
  double layer = 0;       ///< Bytes of a layer's parameters.
  Theory() {
    const auto model = kLarge.model(kLarge.layers);
    for (const auto& parameter : model->parameters()) parameters += static_cast<double>(parameter.numel());
    layer = 4.0 * static_cast<double>(model->num_block_parameters()) / static_cast<double>(kLarge.layers);
  }
  double of(const FSDP*) const { return 16 * parameters / kWorld + 3 * layer; }
  double of(const ZeRO1*) const { return 8 * parameters + 8 * parameters / kWorld; }
  double of(const ZeRO2*) const {
    return 4 * parameters + 12 * parameters / kWorld + static_cast<double>(ZeROConfig{}.bucket_bytes);
  }
};

/// Runs the steps on ranks that communicate over Gloo; returns the memory of the whole process of rank 0.
template <class Strategy>
Measured measure_over_gloo() {
  auto* shared = static_cast<Measured*>(
      ::mmap(nullptr, sizeof(Measured), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  spawn_ranks(kWorld,
              [shared](Group& group) {
                CountingAllocator::install();
                auto trainer = make_trainer<Strategy>(group, kOverGloo);
                barrier(group);
                std::this_thread::sleep_for(std::chrono::milliseconds{100});  // Gloo's threads free the last tensors
                const auto rest = static_cast<double>(CountingAllocator::live);
                trainer->step();
                CountingAllocator::peak = CountingAllocator::live.load();
                trainer->step();
                if (group.rank() == 0) *shared = {rest, static_cast<double>(CountingAllocator::peak)};
                barrier(group);
              },
              {.ranks = Ranks::processes, .deadline = std::chrono::seconds{240}});
  const auto measured = *shared;
  ::munmap(shared, sizeof(Measured));
  return measured;
}

template <class S>
class NearTheory : public testing::Test {};
using Sharded = testing::Types<FSDP, ZeRO1, ZeRO2>;
TYPED_TEST_SUITE(NearTheory, Sharded);

TYPED_TEST(NearTheory, FiftyMillionParametersOnFourRanksNeedAtMostATenthMoreThanTheory) {
  const Theory theory;
  ASSERT_GE(theory.parameters, 50e6);
  const auto alone = measure<TypeParam>(kWorld, kLarge);
  const auto expected = theory.of(static_cast<const TypeParam*>(nullptr));
  std::printf("%.1f MB at rest, %.1f at the peak, theory %.1f: %.3f of it\n", alone.rest / 1e6, alone.peak / 1e6,
              expected / 1e6, alone.peak / expected);
  EXPECT_LE(alone.peak, 1.10 * expected);
}

TYPED_TEST(NearTheory, MemoryBeforeTheFirstStepIsThatOfARankWhichSendsNothing) {
  const auto alone = measure<TypeParam>(kWorld, kOverGloo);
  const auto real = measure_over_gloo<TypeParam>();
  std::printf("Gloo's temporaries: %.1f MB at the peak\n", (real.peak - alone.peak) / 1e6);
  EXPECT_NEAR(real.rest, alone.rest, 0.001 * alone.rest);
}

// --- no growth ---

constexpr Sizes kTiny{.layers = 3, .width = 16, .length = 8, .batch = 2};

template <class S>
class NoGrowth : public testing::Test {};
using Pooled = testing::Types<FSDP, ZeRO2, Recompute<FSDP>>;
TYPED_TEST_SUITE(NoGrowth, Pooled);

TYPED_TEST(NoGrowth, OfBytesOverAThousandSteps) {
  LiveBytes live;
  auto group = recording_group(0, 2, std::make_shared<Recording>());
  {
    auto trainer = make_trainer<TypeParam>(group, kTiny);
    for (int step = 0; step < 10; ++step) trainer->step();
    const auto at_ten = live.current();
    live.reset_peak();
    for (int step = 0; step < 10; ++step) trainer->step();
    const auto peak = live.peak();
    live.reset_peak();
    for (int step = 20; step < 1000; ++step) trainer->step();
    EXPECT_EQ(live.current(), at_ten);
    EXPECT_EQ(live.peak(), peak);
  }
  group.leave();
}

TEST(NoGrowthOverGloo, OfBytesOverAThousandSteps) {
  spawn_ranks(2, [](Group& group) {
    CountingAllocator::install();
    auto trainer = make_trainer<FSDP>(group, kTiny);
    for (int step = 0; step < 10; ++step) trainer->step();
    // Gloo's threads free the last tensors after the end of a step, on a busy machine later.
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    const auto at_ten = CountingAllocator::live.load();
    for (int step = 10; step < 1000; ++step) trainer->step();
    const auto latest = std::chrono::steady_clock::now() + std::chrono::minutes{1};
    while (CountingAllocator::live > at_ten && std::chrono::steady_clock::now() < latest)
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
    EXPECT_LE(CountingAllocator::live.load(), at_ten);
  });
}

// --- recompute ---

TEST(Recomputed, LayersKeepTheirInputsAndOneLayersActivations) {
  // The model is deep and narrow, so that the gradients that backward holds, five times an input, are comparatively
  // small.
  constexpr Sizes kDeep{.layers = 64, .width = 64, .length = 64, .batch = 16};
  constexpr auto kLayers = static_cast<double>(kDeep.layers);
  auto shallow = kDeep;
  shallow.layers /= 2;
  const auto activations = [](const Measured& measured) { return measured.peak - measured.rest; };
  const auto plain = activations(measure<SingleDevice>(1, kDeep));
  // The activations of a layer.
  const double saved = (plain - activations(measure<SingleDevice>(1, shallow))) / (kLayers / 2);
  const double input = 4.0 * kDeep.batch * kDeep.length * kDeep.width;
  const auto recomputed = activations(measure<Recompute<SingleDevice>>(1, kDeep));
  std::printf("a layer saves %.2f of its input; %.2f MB in all, recomputed %.2f MB, theory %.2f MB\n", saved / input,
              plain / 1e6, recomputed / 1e6, (kLayers * input + saved) / 1e6);
  EXPECT_NEAR(plain, kLayers * saved, 0.10 * plain);
  EXPECT_NEAR(recomputed, kLayers * input + saved, 0.10 * recomputed);
}

// --- known before the run ---

constexpr Sizes kPlanned{.layers = 14, .width = 64, .length = 48, .batch = 20};

template <class Strategy, class Precision = Float32>
void expect_planned(int world_size, const Sizes& sizes, const typename Strategy::Config& strategy = {},
                    const TrainingConfig& training = {}, std::int64_t period = 1) {
  std::int64_t deepest = 0;
  const auto plan = plan_memory(
      PlannedRun<Strategy, Precision, AdamW>{.world_size = world_size,
                                             .layers = sizes.layers,
                                             .batch_size = sizes.batch,
                                             .accumulation_steps = training.accumulation_steps,
                                             .ema_decay = training.ema_decay,
                                             .strategy = strategy,
                                             .period = period},
      [&](std::int64_t layers) {
        deepest = std::max(deepest, layers);
        return sizes.model(layers);
      },
      [&](std::int64_t samples) { return sizes.data(1).some(samples); });
  EXPECT_LT(deepest, sizes.layers) << "planning must not build the whole model";
  const auto measured = measure<Strategy, Precision>(world_size, sizes, strategy, training);
  EXPECT_NEAR(static_cast<double>(plan.states()), measured.rest, 0.02 * measured.rest);
  const auto of_steps = measured.peak - measured.rest;
  EXPECT_NEAR(static_cast<double>(plan.total() - plan.states()), of_steps, 0.10 * of_steps);
  EXPECT_GT(plan.activations, 0);
}

/// FSDP with units of two layers of the planned model.
FSDPConfig in_pairs(FSDPConfig config = {}) {
  config.unit_bytes = 300'000;
  return config;
}

TEST(Plan, ForesaysOneProcess) {
  expect_planned<SingleDevice>(1, kPlanned);
  auto wide = kPlanned;
  wide.vocabulary = 2000;  // the loss needs more memory than a layer
  expect_planned<SingleDevice>(1, wide);
}
TEST(Plan, ForesaysEveryStrategyOnManyRanks) {
  for (const int world : {2, 64}) {
    expect_planned<DDP>(world, kPlanned);
    expect_planned<ZeRO1>(world, kPlanned);
    expect_planned<ZeRO2>(world, kPlanned);
    expect_planned<FSDP>(world, kPlanned, {.unit_bytes = 0});
    expect_planned<FSDP>(world, kPlanned, in_pairs());
  }
  expect_planned<FSDP>(4096, kPlanned, {.unit_bytes = 0});
  expect_planned<FSDP>(4, kPlanned, in_pairs({.reshard_after_forward = "false"}));
}
TEST(Plan, ForesaysEveryPrecision) {
  expect_planned<FSDP, AutocastBF16>(4, kPlanned, in_pairs());
  expect_planned<FSDP, LowPrecision<>>(4, kPlanned, in_pairs());
}
TEST(Plan, ForesaysRecompute) {
  using Policy = RecomputeConfig::Policy;
  expect_planned<Recompute<FSDP>>(4, kPlanned, {.inner = in_pairs()});
  expect_planned<Recompute<FSDP>>(4, kPlanned, {.inner = in_pairs(), .recompute = {.policy = Policy::selective}});
  expect_planned<Recompute<FSDP>>(
      4, kPlanned, {.inner = {.unit_bytes = 0}, .recompute = {.policy = Policy::every, .count = 2}}, {}, 2);
  expect_planned<Recompute<FSDP>>(
      4, kPlanned, {.inner = {.unit_bytes = 0}, .recompute = {.policy = Policy::segments, .count = 2}}, {}, 2);
}
TEST(Plan, ForesaysAnAverageAndAccumulatedSteps) {
  expect_planned<DDP>(4, kPlanned, {}, {.ema_decay = 0.99});
  expect_planned<FSDP>(4, kPlanned, in_pairs({.reduce_each_backward = false}), {.accumulation_steps = 3});
}

/// Buckets with about a layer and a half.
template <class Config>
Config in_buckets() {
  Config config;
  config.first_bucket_bytes = config.bucket_bytes = 300'000;
  return config;
}

TEST(Plan, ForesaysStepsInBackward) {
  const TrainingConfig plain{.grad_norm_clip = 0};
  expect_planned<StepInBackward<DDP>>(2, kPlanned, in_buckets<DDPConfig>(), plain);
  expect_planned<StepInBackward<ZeRO1>>(2, kPlanned, in_buckets<ZeROConfig>(), plain);
  expect_planned<StepInBackward<ZeRO2>>(64, kPlanned, in_buckets<ZeROConfig>(), plain);
  expect_planned<StepInBackward<FSDP>>(64, kPlanned, in_pairs(), plain);
  expect_planned<Recompute<StepInBackward<DDP>>>(2, kPlanned, {.inner = in_buckets<DDPConfig>()}, plain);
  expect_planned<StepInBackward<Recompute<FSDP>>>(4, kPlanned, {.inner = in_pairs()}, plain);
  expect_planned<StepInBackward<FSDP>>(4, kPlanned, in_pairs(),
                                       {.grad_norm_clip = 0, .accumulation_steps = 2, .ema_decay = 0.99});
  auto deep = kPlanned;  // SingleDevice makes segments of about twenty layers
  deep.layers = 92;
  deep.length = 2;
  expect_planned<StepInBackward<SingleDevice>>(1, deep, {}, plain);
  // With almost no activations, the memory of a step is that of the gradients of pending segments.
  auto bare = kPlanned;
  bare.layers = 30;
  bare.length = bare.batch = 2;
  const TrainingConfig accumulated{.grad_norm_clip = 0, .accumulation_steps = 2};
  expect_planned<StepInBackward<DDP>>(2, bare, in_buckets<DDPConfig>(), plain);
  expect_planned<StepInBackward<DDP>>(2, bare, in_buckets<DDPConfig>(), accumulated);
  expect_planned<StepInBackward<ZeRO1>>(2, bare, in_buckets<ZeROConfig>(), accumulated);
  expect_planned<StepInBackward<ZeRO2>>(2, bare, in_buckets<ZeROConfig>(), plain);
  expect_planned<StepInBackward<FSDP>>(4, bare, in_pairs(), plain);
}

TEST(Plan, BuildsNoWholeModelWhereAPeriodAndBucketsMeetOnlyBelowIt) {
  auto deep = kPlanned;
  deep.layers = 30;
  auto buckets = in_buckets<DDPConfig>();
  buckets.first_bucket_bytes = buckets.bucket_bytes = 1'000'000;  // five layers
  for (const std::int64_t period : {3, 7})
    expect_planned<Recompute<StepInBackward<DDP>>>(
        2, deep, {.inner = buckets, .recompute = {.policy = RecomputeConfig::Policy::every, .count = period}},
        {.grad_norm_clip = 0}, period);
}

/// A model that reads its loss in every forward pass.
class Curious : public GPT {
 public:
  using GPT::GPT;
  template <class Run, class Batch>
  Loss forward(Run& run, const Batch& batch) {
    auto loss = GPT::forward(run, batch);
    last_loss = loss.sum.template item<double>();
    return loss;
  }
  static inline double last_loss = 0;
};

TEST(Plan, ComputesTheValuesThatAModelReads) {
  const auto plan_for = [&]<class Model>(Model*) {
    return plan_memory(
        PlannedRun<FSDP, Float32, AdamW>{.world_size = 4, .layers = 14, .batch_size = 20},
        [&](std::int64_t layers) {
          return std::make_shared<Model>(
              GPTConfig{.n_layer = layers, .n_head = 4, .n_embd = kPlanned.width, .dropout = 0.0}, kPlanned.vocabulary,
              kPlanned.length);
        },
        [&](std::int64_t samples) { return kPlanned.data(1).some(samples); });
  };
  const auto computed = static_cast<double>(plan_for(static_cast<Curious*>(nullptr)).total());
  EXPECT_NEAR(Curious::last_loss / static_cast<double>(8 * kPlanned.length), std::log(kPlanned.vocabulary), 0.2);
  EXPECT_NEAR(static_cast<double>(plan_for(static_cast<GPT*>(nullptr)).total()), computed, 0.001 * computed);
}

TEST(Plan, SharesOutByTheBytesOfTheStates) {
  const auto run = [&]<class Strategy>(Strategy*) {
    return plan_memory(
        PlannedRun<Strategy, Float32, AdamW>{.world_size = 4, .layers = 14, .batch_size = 2},
        [&](std::int64_t layers) { return kPlanned.model(layers); },
        [&](std::int64_t samples) { return kPlanned.data(1).some(samples); });
  };
  double whole = 0;
  for (const auto& parameter : kPlanned.model(kPlanned.layers)->parameters())
    whole += 4.0 * static_cast<double>(parameter.numel());
  const auto expect = [&](const MemoryPlan& plan, double parameters, double gradients, double optimizer) {
    EXPECT_NEAR(static_cast<double>(plan.parameters), parameters * whole, 0.02 * whole);
    EXPECT_NEAR(static_cast<double>(plan.gradients), gradients * whole, 0.02 * whole);
    EXPECT_NEAR(static_cast<double>(plan.optimizer), optimizer * whole, 0.02 * whole);
    EXPECT_EQ(plan.inputs, 2 * 2 * 8 * kPlanned.length);
  };
  expect(run(static_cast<DDP*>(nullptr)), 1, 1, 2);
  expect(run(static_cast<ZeRO1*>(nullptr)), 1, 1, 0.5);
  expect(run(static_cast<ZeRO2*>(nullptr)), 1, 0.25, 0.5);
  expect(run(static_cast<FSDP*>(nullptr)), 0.25, 0.25, 0.5);
  expect(run(static_cast<StepInBackward<DDP>*>(nullptr)), 1, 0, 2);
  expect(run(static_cast<StepInBackward<ZeRO2>*>(nullptr)), 1, 0, 0.5);
  expect(run(static_cast<StepInBackward<FSDP>*>(nullptr)), 0.25, 0, 0.5);
}

}  // namespace
}  // namespace ddpxx::memory_test
