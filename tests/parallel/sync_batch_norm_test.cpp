// Batch norm over all ranks: equal to one process that has the whole batch, in Python and here. Python's SyncBatchNorm
// runs on GPUs only, so the other side is its BatchNorm2d.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/recording.hpp>
#include <ddpxx/parallel/sync_batch_norm.hpp>
#include <ddpxx/snapshot/safetensors.hpp>
#include <ddpxx/testing.hpp>

#include "../error_of.hpp"
#include "../parity/python.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::sync_batch_norm_test {
namespace {

/// The largest difference, as a fraction of the largest number.
double difference(const at::Tensor& one, const at::Tensor& other) {
  return ((one - other).abs().max() / other.abs().max()).item<double>();
}

/// The samples of a rank: ranks have one sample more or less than each other.
at::Tensor own_part(const at::Tensor& batch, const Group& group) {
  const auto begin = [&](std::int64_t rank) {
    return rank == group.size() ? batch.size(0) : rank * batch.size(0) / group.size();
  };
  return batch.narrow(0, begin(group.rank()), begin(group.rank() + 1) - begin(group.rank()));
}

/// Compares ranks with uneven batches with Python's batch norm of the joined batch.
void expect_equal_to_python(const SyncBatchNormOptions& options, const std::vector<std::string>& arguments) {
  const TemporaryFolder folder;
  constexpr int kSteps = 3;
  at::manual_seed(3);
  NamedTensors given{{"weight", at::rand({3}) + 0.5}, {"bias", at::randn({3})}};
  for (int step = 0; step < kSteps; ++step) {
    const auto number = std::to_string(step);
    given.emplace("input." + number, 5 * at::randn({7, 3, 4, 5}) + at::tensor({20.0F, 0.0F, -3.0F}).view({3, 1, 1}));
    given.emplace("gradient." + number, at::randn({7, 3, 4, 5}));
  }
  const auto given_path = folder / "given.safetensors", result_path = folder / "result.safetensors";
  write_safetensors(given_path, given, {});
  std::vector<std::string> words{given_path.string(), result_path.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  run_python("../parallel/sync_batch_norm.py", words);
  const auto expected = read_safetensors(result_path, Checksum::optional).tensors;

  for (const int world_size : {2, 3})
    spawn_ranks(world_size, [&](Group& group) {
      SyncBatchNorm norm{3, group, options};
      {
        const torch::NoGradGuard no_grad;
        for (auto& item : norm.named_parameters()) item.value().copy_(given.at(item.key()));
      }
      for (int step = 0; step < kSteps; ++step) {
        const auto number = "." + std::to_string(step);
        const auto x = own_part(given.at("input" + number), group).clone().set_requires_grad(true);
        norm.zero_grad();
        const auto y = norm.forward(x);
        y.backward(own_part(given.at("gradient" + number), group));
        EXPECT_LT(difference(y.detach(), own_part(expected.at("output" + number), group)), 1e-5);
        EXPECT_LT(difference(x.grad(), own_part(expected.at("of_input" + number), group)), 1e-5);
        for (const auto& item : norm.named_parameters()) {
          const auto gradient = item.value().grad().clone();
          all_reduce(gradient, group);
          EXPECT_LT(difference(gradient, expected.at("of_" + item.key() + number)), 1e-5) << item.key();
        }
        for (const auto& item : norm.named_buffers())
          EXPECT_LT(difference(item.value(), expected.at(item.key() + number)), 1e-5) << item.key();
      }
      norm.eval();
      const auto evaluated = norm.forward(own_part(given.at("input.0"), group));
      EXPECT_LT(difference(evaluated.detach(), own_part(expected.at("evaluated"), group)), 1e-5);
    });
}

TEST(SyncBatchNormParity, RanksWithUnevenBatchesEqualPythonsBatchNormOfTheJoinedBatch) {
  expect_equal_to_python({.eps = 1e-3, .momentum = 0.3}, {});
}

TEST(SyncBatchNormParity, HoldsWithoutWeightsAndWithMeansOverAllBatches) {
  expect_equal_to_python({.eps = 1e-3, .momentum = std::nullopt, .affine = false}, {"plain"});
}

/// Two linear layers with a batch norm behind each, whose second batch norm makes gradients of the first one's outputs
/// depend on all samples.
struct Network : torch::nn::Module {
  explicit Network(const Group& group)
      : norm1{register_module("norm1", std::make_shared<SyncBatchNorm>(6, group))},
        norm2{register_module("norm2", std::make_shared<SyncBatchNorm>(5, group))} {}
  at::Tensor forward(const at::Tensor& x) {
    return norm2->forward(linear2(norm1->forward(linear1(x)).tanh())).pow(3).sum();
  }
  torch::nn::Linear linear1 = register_module("linear1", torch::nn::Linear{4, 6});
  torch::nn::Linear linear2 = register_module("linear2", torch::nn::Linear{6, 5});
  std::shared_ptr<SyncBatchNorm> norm1, norm2;
};

TEST(SyncBatchNorm, GradientsOfThreeRanksAreThoseOfOneToTwelveDigits) {
  spawn_ranks(3, [](Group& group) {
    const Group alone;
    const auto options = at::TensorOptions{at::kDouble};
    at::manual_seed(4);
    const auto batch = at::randn({10, 4}, options);
    Network whole{alone}, part{group};
    whole.to(at::kDouble);
    part.to(at::kDouble);
    {
      const torch::NoGradGuard no_grad;
      auto parameters = part.parameters();
      for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].copy_(whole.parameters()[i]);
    }
    const auto x = batch.clone().set_requires_grad(true);
    whole.forward(x).backward();
    const auto own_x = own_part(batch, group).clone().set_requires_grad(true);
    part.forward(own_x).backward();

    EXPECT_LT(difference(own_x.grad(), own_part(x.grad(), group)), 1e-12);
    for (const auto& item : part.named_parameters()) {
      const auto gradient = item.value().grad().clone();
      all_reduce(gradient, group);
      // The gradient of a bias before a batch norm is 0, except for rounding errors.
      const auto expected = whole.named_parameters()[item.key()].grad();
      EXPECT_LT((gradient - expected).abs().max().item<double>(), 1e-12 * (1 + expected.abs().max().item<double>()))
          << item.key();
    }
    for (const auto& item : part.named_buffers())
      EXPECT_LT(difference(item.value(), whole.named_buffers()[item.key()]), 1e-12) << item.key();
  });
}

void expect_equal_to_torchs(std::optional<double> momentum, bool affine) {
  const Group alone;
  SyncBatchNorm norm{3, alone, {.eps = 1e-3, .momentum = momentum, .affine = affine}};
  torch::nn::BatchNorm2d torchs{torch::nn::BatchNorm2dOptions(3).eps(1e-3).momentum(momentum).affine(affine)};
  at::manual_seed(5);
  for (const bool training : {true, true, false}) {
    norm.train(training);
    torchs->train(training);
    const auto x = at::randn({4, 3, 2, 2}).set_requires_grad(true), same_x = x.detach().clone().set_requires_grad(true);
    const auto y = norm.forward(x), same_y = torchs->forward(same_x);
    EXPECT_TRUE(at::equal(y, same_y));
    y.pow(3).sum().backward();
    same_y.pow(3).sum().backward();
    EXPECT_TRUE(at::equal(x.grad(), same_x.grad()));
  }
  ASSERT_EQ(norm.named_buffers().size(), torchs->named_buffers().size());
  for (const auto& item : torchs->named_buffers())
    EXPECT_TRUE(at::equal(norm.named_buffers()[item.key()], item.value())) << item.key();
}

TEST(SyncBatchNorm, OfOneRankIsTorchsBatchNorm) {
  expect_equal_to_torchs(0.2, true);
  expect_equal_to_torchs(std::nullopt, false);
}

TEST(SyncBatchNorm, SendsTheStatisticsInForwardAndTheirGradientsInBackwardAndNothingInEvaluation) {
  const auto recording = std::make_shared<Recording>();
  auto group = recording_group(0, 4, recording);
  SyncBatchNorm norm{3, group};
  const auto y = norm.forward(at::randn({2, 3, 5}).set_requires_grad(true));
  ASSERT_EQ(recording->calls.size(), 1U);
  EXPECT_EQ(recording->count("all_gather"), 1);
  EXPECT_EQ(recording->bytes("all_gather"), 4 * (2 * 3 + 1) * 4);
  y.sum().backward();
  ASSERT_EQ(recording->calls.size(), 2U);
  EXPECT_EQ(recording->bytes("all_reduce"), 2 * 3 * 4);
  recording->calls.clear();
  norm.forward(at::randn({2, 3, 5})).sum().backward();
  EXPECT_EQ(recording->calls.size(), 1U) << "an input without a gradient needs no sums of backward";
  norm.eval();
  norm.forward(at::randn({2, 3, 5})).sum().backward();
  EXPECT_EQ(recording->calls.size(), 1U);
  group.leave();
}

TEST(SyncBatchNorm, ComputesSixteenBitInputsInFloat32) {
  for (const auto type : {at::kBFloat16, at::kHalf})
    for (const bool low_parameters : {false, true})  // as under autocast, and as LowPrecision holds them
      spawn_ranks(2, [&](Group& group) {
        at::manual_seed(6);
        const auto batch = (at::randn({64, 3, 8}) + 10).to(type);
        const auto weights = at::randn({64, 3, 8});
        const auto loss = [&](const at::Tensor& y, const at::Tensor& factors) {
          return (y.to(at::kFloat).pow(3) * factors).sum();
        };
        SyncBatchNorm norm{3, group};
        if (low_parameters)
          for (auto& parameter : norm.parameters()) parameter.set_data(parameter.to(type));
        const auto x = own_part(batch, group).clone().set_requires_grad(true);
        const auto y = norm.forward(x);
        EXPECT_EQ(y.scalar_type(), type);
        loss(y, own_part(weights, group)).backward();
        EXPECT_EQ(x.grad().scalar_type(), type);
        const auto mean = 0.1 * batch.to(at::kFloat).mean(at::IntArrayRef{0, 2});
        EXPECT_LT(difference(norm.named_buffers()["running_mean"], mean), 1e-5);

        const Group alone;
        SyncBatchNorm whole{3, alone};
        const auto exact = batch.to(at::kFloat).set_requires_grad(true);
        loss(whole.forward(exact), weights).backward();
        EXPECT_LT(difference(x.grad().to(at::kFloat), own_part(exact.grad(), group)), 0.02);
        norm.eval();
        EXPECT_EQ(norm.forward(x).scalar_type(), type);
      });
}

TEST(SyncBatchNorm, ARankWithoutSamplesTakesPart) {
  spawn_ranks(3, [](Group& group) {
    at::manual_seed(7);
    const auto batch = at::randn({5, 3, 2});
    const Group alone;
    SyncBatchNorm norm{3, group}, whole{3, alone};
    const auto x = batch.clone().set_requires_grad(true);
    whole.forward(x).pow(3).sum().backward();
    const std::int64_t begin = group.rank() == 0 ? 0 : 2, size = group.rank() == 0 ? 2 : group.rank() == 1 ? 0 : 3;
    const auto own_x = batch.narrow(0, begin, size).clone().set_requires_grad(true);
    const auto y = norm.forward(own_x);
    EXPECT_EQ(y.sizes(), own_x.sizes());
    y.pow(3).sum().backward();
    EXPECT_TRUE(at::allclose(own_x.grad(), x.grad().narrow(0, begin, size), 1e-4, 1e-5));
    for (const auto& item : norm.named_buffers())
      EXPECT_LT(difference(item.value(), whole.named_buffers()[item.key()]), 1e-5) << item.key();
  });
}

TEST(SyncBatchNorm, OneValuePerChannelOrNoneLeavesFiniteStatistics) {
  spawn_ranks(2, [](Group& group) {
    SyncBatchNorm norm{3, group};
    for (const std::int64_t samples : {1 - group.rank(), 0})
      EXPECT_EQ(norm.forward(at::ones({samples, 3})).size(0), samples);
    for (const auto& item : norm.named_buffers()) EXPECT_TRUE(item.value().isfinite().all().item<bool>()) << item.key();
  });
}

TEST(SyncBatchNorm, RefusesASecondDerivative) {
  spawn_ranks(2, [](Group& group) {
    SyncBatchNorm norm{3, group};
    const auto x = at::randn({4, 3}).set_requires_grad(true);
    EXPECT_THROW(norm.forward(x).sum().backward({}, std::nullopt, /*create_graph=*/true), Error);
    norm.forward(x).sum().backward();
    EXPECT_TRUE(x.grad().defined());
  });
}

TEST(SyncBatchNorm, RefusesOtherShapesAndOneValuePerChannel) {
  const auto error_of = [](SyncBatchNorm& norm, const at::Tensor& x) -> std::string {
    try {
      norm.forward(x);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config);
      return error.what();
    }
    return "";
  };
  const Group alone;
  SyncBatchNorm norm{3, alone};
  EXPECT_EQ(error_of(norm, at::ones({4})), "SyncBatchNorm of 3 channels: input [4] is not [N, 3, ...]");
  EXPECT_EQ(error_of(norm, at::ones({4, 2})), "SyncBatchNorm of 3 channels: input [4, 2] is not [N, 3, ...]");
  EXPECT_EQ(error_of(norm, at::ones({1, 3, 1})),
            "SyncBatchNorm: input [1, 3, 1] has one value per channel, whose variance is not known: train with two "
            "samples or more in a batch");
  norm.eval();
  EXPECT_EQ(error_of(norm, at::ones({1, 3, 1})), "");
  spawn_ranks(2, [&](Group& group) {  // together the ranks have two values, as in Python
    SyncBatchNorm both{3, group};
    const auto y = both.forward(at::full({1, 3}, group.rank(), at::kFloat));
    EXPECT_TRUE(at::allclose(y, at::full({1, 3}, group.rank() == 0 ? -1.0 : 1.0), 1e-3)) << y;
  });
}

TEST(SyncBatchNorm, RefusesToCountItsBatchesInSixteenBits) {
  const Group alone;
  SyncBatchNorm norm{3, alone, {.momentum = std::nullopt}};
  const auto x = at::randn({4, 3});
  norm.forward(x);
  norm.to(at::kBFloat16);  // torch::nn::Module converts buffers of integers too
  const auto forward = [&] { norm.forward(x.to(at::kBFloat16)); };
  EXPECT_EQ(code_of(forward), Errc::config);
  EXPECT_EQ(error_of(forward),
            "SyncBatchNorm without momentum counts the batches in num_batches_tracked, which Module::to() has "
            "converted: convert the parameters alone, as the precisions do, or set momentum");
}

}  // namespace
}  // namespace ddpxx::sync_batch_norm_test
