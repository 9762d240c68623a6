// In every precision, each strategy gives the results of one process within the rounding of the precision, and bit for
// bit where exact results are possible.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/parallel/data_parallel.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/precision/low_precision.hpp>
#include <ddpxx/precision/tf32.hpp>

#include "tiny_run.hpp"

namespace ddpxx::precisions_test {
namespace {

/// The largest relative error of rounding to the precision's 16 bits.
constexpr double rounding(const auto& /*bfloat16*/) { return 0x1p-9; }
constexpr double rounding(const AutocastFP16&) { return 0x1p-12; }

/// The distance between two courses: the largest relative difference of a loss and of a norm, and the relative
/// difference of all parameters together.
struct Distance {
  double losses = 0, norms = 0, parameters = 0;
};
Distance distance(const Course& got, const Course& expected) {
  Distance distance;
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    distance.losses = std::max(distance.losses, std::abs(got.losses.at(i) / expected.losses[i] - 1));
    distance.norms = std::max(distance.norms, std::abs(got.norms.at(i) / expected.norms[i] - 1));
  }
  double difference = 0, norm = 0;
  for (const auto& [name, parameter] : expected.state) {
    if (!name.starts_with("model.")) continue;
    difference += (got.state.at(name) - parameter).square().sum().item<double>();
    norm += parameter.square().sum().item<double>();
  }
  distance.parameters = std::sqrt(difference / norm);
  return distance;
}

template <class Precision>
class Precisions : public testing::Test {
 protected:
  template <class Strategy>
  static Course run(int world_size, const CourseOptions& options = {}, const typename Strategy::Config& strategy = {}) {
    typename Precision::Config config;
    // With four ranks backward starts from a gradient four times as large: with the default scale of 65536 the first
    // step would overflow and be skipped.
    if constexpr (requires { config.scaler; }) config.scaler.initial_scale = 1024;
    return train_course<Strategy, AdamW, Precision>(world_size, options, strategy, config);
  }
  static const Course& reference() {
    static const Course course = run<SingleDevice>(1);
    return course;
  }

  /// A rank with half of the batch rounds other sums. Largest errors measured over 20 steps at 1, 2 and 4 ranks, of
  /// which a course has the first 12, in units of one rounding: losses 0.24, norms 8.7 (LowPrecision at two ranks;
  /// autocast 3.7), parameters 0.8. A gradient that is divided by the wrong number of ranks gives an error of a
  /// hundred.
  template <class Strategy>
  static void expect_near_the_reference(int world_size, const typename Strategy::Config& strategy = {}) {
    SCOPED_TRACE("world of " + std::to_string(world_size));
    const auto found = distance(run<Strategy>(world_size, {}, strategy), reference());
    const double unit = rounding(Precision{typename Precision::Config{}});
    EXPECT_LE(found.losses, 1 * unit);
    EXPECT_LE(found.norms, 16 * unit);
    EXPECT_LE(found.parameters, 2 * unit);
  }
};
using SixteenBits = testing::Types<AutocastBF16, AutocastFP16, LowPrecision<>>;
TYPED_TEST_SUITE(Precisions, SixteenBits);

TYPED_TEST(Precisions, TheReferenceLearnsAndLeavesNoStepOut) {
  const auto& reference = this->reference();
  EXPECT_LT(reference.losses.back(), 0.95 * reference.losses.front());
  EXPECT_GT(*std::min_element(reference.norms.begin(), reference.norms.end()), 0);
}
TYPED_TEST(Precisions, DDP) {
  expect_same_bits(this->template run<DDP>(1), this->reference());
  this->template expect_near_the_reference<DDP>(2);
}
TYPED_TEST(Precisions, ZeRO1) {
  expect_same_bits(this->template run<ZeRO1>(1), this->reference());
  this->template expect_near_the_reference<ZeRO1>(2);
}
TYPED_TEST(Precisions, ZeRO2) {
  expect_same_bits(this->template run<ZeRO2>(1), this->reference());
  this->template expect_near_the_reference<ZeRO2>(2);
}
TYPED_TEST(Precisions, FSDP) {
  for (const int world : {1, 2, 4}) this->template expect_near_the_reference<FSDP>(world);
}
TYPED_TEST(Precisions, HSDP) {
  this->template expect_near_the_reference<HSDP>(2, {.shard_size = 1, .fsdp = {}});
  this->template expect_near_the_reference<HSDP>(4, {.shard_size = 2, .fsdp = {}});
}
TYPED_TEST(Precisions, DataParallel) {
  expect_same_bits(this->template run<DataParallel>(1), this->reference());
  for (const int replicas : {2, 4}) {
    SCOPED_TRACE(std::to_string(replicas) + " replicas");
    this->template expect_near_the_reference<DataParallel>(1, {.replicas = replicas});
  }
}

/// Dropout is on. Clipping by the norm is off, because the sharded strategies add up the norm in another order than
/// DDP.
const CourseOptions kBits{.dropout = 0.2, .clip = 0};

TYPED_TEST(Precisions, ShardedStrategiesEqualDDPBitForBit) {
  for (const int world : {1, 2}) {
    SCOPED_TRACE("world of " + std::to_string(world));
    const auto ddp = this->template run<DDP>(world, kBits);
    expect_same_bits(this->template run<ZeRO1>(world, kBits), ddp);
    expect_same_bits(this->template run<ZeRO2>(world, kBits), ddp);
    expect_same_bits(this->template run<FSDP>(world, kBits), ddp);
    expect_same_bits(this->template run<HSDP>(world, kBits, {.shard_size = 1, .fsdp = {}}), ddp);
    expect_same_bits(this->template run<Recompute<FSDP>>(world, kBits), ddp);
  }
}

/// A model on floating-point inputs whose loss has the type of its parameters.
struct Sum : torch::nn::Module {
  Sum() { weight = register_parameter("weight", at::ones({1, 4})); }
  Loss forward(const Batch& batch) { return {at::linear(batch.inputs, weight).sum()}; }
  at::Tensor weight;
};
/// The number of targets is larger than the largest float16.
struct Ones {
  std::int64_t size() const { return 8; }
  Batch batch(std::span<const std::int64_t> indices) const {
    const auto n = std::ssize(indices);
    return {at::ones({n, 4}), at::zeros({n}), n * 50'000};
  }
};

TEST(LowPrecision, TakesNumbersAndCountsTheTargetsOfAFloat16LossInFloat32) {
  using Train = Trainer<Sum, Ones, SGD, LowPrecision<at::kHalf>, SingleDevice>;
  const TemporaryFolder folder;
  typename Train::Config config;
  config.batch_size = 2;
  config.training = {.max_steps = 1, .metrics = (folder / "metrics.jsonl").string()};
  Group alone;
  Train{alone, std::make_shared<Sum>(), std::make_shared<const Ones>(), config}.fit();
  std::ifstream file{folder / "metrics.jsonl"};
  const auto row = nlohmann::json::parse(file);
  EXPECT_NEAR(row.at("loss"), 8.0 / 100'000, 1e-9);
  EXPECT_NEAR(row.at("grad_norm"), 4.0 / 100'000, 1e-7)
      << "each of 4 weights has a gradient of 2 samples / 100 000 targets";
}

/// The loss is finite, but from some step on the gradient is NaN: the derivative of a square root at zero, times zero.
struct Broken : torch::nn::Module {
  explicit Broken(int first_bad) : good{first_bad} { weight = register_parameter("weight", at::ones({4})); }
  Loss forward(const Batch& batch) {
    return {(batch.inputs * weight).sum() + (good-- > 0 ? weight.sum() : (weight * 0).sqrt().sum())};
  }
  at::Tensor weight;
  int good;
};

template <class Strategy>
void expect_end_after_a_hundred_skipped_steps() {
  const TemporaryFolder folder;
  constexpr int kGood = 3;
  try {
    spawn_ranks(2, [&](Group& group) {
      using Train = Trainer<Broken, Ones, SGD, AutocastFP16, Strategy>;
      typename Train::Config config;
      config.batch_size = 2;
      config.training = {.max_steps = 200, .max_epochs = 0, .metrics = (folder / "metrics.jsonl").string()};
      Train{group, std::make_shared<Broken>(kGood), std::make_shared<const Ones>(), config}.fit();
    });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::numerics);
    for (const char* rank : {"rank 0: ", "rank 1: "})
      EXPECT_THAT(error.what(), testing::HasSubstr(std::string{rank} + "the last 100 steps were left out"));
    EXPECT_THAT(error.what(), testing::HasSubstr("step=103"));
  }
  std::ifstream file{folder / "metrics.jsonl"};
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(nlohmann::json::parse(line));
  ASSERT_GE(rows.size(), 102U);
  EXPECT_EQ(rows[2].at("skipped_steps"), 0);
  EXPECT_EQ(rows[2].at("loss_scale"), 65536.0);
  EXPECT_EQ(rows[3].at("skipped_steps"), 1);
  EXPECT_EQ(rows[4].at("skipped_steps"), 2);
  EXPECT_EQ(rows[4].at("loss_scale"), 32768.0);
}

TEST(LossScale, ARunThatSkipsAHundredStepsEndsOnAllRanks) {
  expect_end_after_a_hundred_skipped_steps<DDP>();
  expect_end_after_a_hundred_skipped_steps<FSDP>();
}

TEST(TF32, IsRefusedOnACpuByEveryRank) {
  try {
    spawn_ranks(2, [](Group& group) {
      auto met = at::ones({1});
      // Waits until both ranks are connected: otherwise the slower rank would report a lost peer.
      all_reduce(met, group);
      using Train = Trainer<GPT, Tokens, AdamW, TF32, DDP>;
      const GPTConfig sizes{.n_layer = 1, .n_head = 2, .n_embd = 4};
      Train{group, std::make_shared<GPT>(sizes, 17, 12), std::make_shared<const Tokens>(), typename Train::Config{}};
    });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    for (const char* rank : {"rank 0: ", "rank 1: "})
      EXPECT_THAT(error.what(), testing::HasSubstr(std::string{rank} + "precision TF32 is for GPUs"));
  }
}

}  // namespace
}  // namespace ddpxx::precisions_test
