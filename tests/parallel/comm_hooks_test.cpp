// Communication hooks of DDP: compared with PyTorch's hooks on two ranks, and the properties of each hook.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/config/print.hpp>
#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/hooks/batched_power_sgd.hpp>
#include <ddpxx/parallel/hooks/compress.hpp>
#include <ddpxx/parallel/hooks/no_hook.hpp>
#include <ddpxx/parallel/hooks/post_local_sgd.hpp>
#include <ddpxx/parallel/hooks/power_sgd.hpp>
#include <ddpxx/parallel/hooks/quantize.hpp>
#include <ddpxx/snapshot/safetensors.hpp>
#include <ddpxx/testing.hpp>

#include "../parity/python.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::comm_hooks_test {
namespace {

using BF16PowerSGD = Compress<at::kBFloat16, PowerSGD>;

static_assert(ParallelStrategy<DDPWith<FP16Compress>> && ParallelStrategy<DDPWith<BF16PowerSGD>> &&
              ParallelStrategy<DDPWith<PowerSGD>> && ParallelStrategy<DDPWith<BatchedPowerSGD>> &&
              ParallelStrategy<DDPWith<Quantize>> && ParallelStrategy<DDPWith<PostLocalSGD>> &&
              ParallelStrategy<DDPWith<NoSync>>);

using Gradients_ = std::vector<std::pair<std::string, at::Tensor>>;

/// A model whose gradients are the tensors that forward receives.
struct Given : torch::nn::Module {
  Given() {
    register_parameter("matrix", at::zeros({24, 16}));
    register_parameter("kernel", at::zeros({10, 8, 3}));
    register_parameter("bias", at::zeros({16}));
  }
  at::Tensor forward(const Gradients_& gradients) {
    at::Tensor loss = at::zeros({});
    for (const auto& [name, gradient] : gradients) loss = loss + (named_parameters()[name] * gradient).sum();
    return loss;
  }
  at::Tensor gradient(const std::string& name) { return named_parameters()[name].grad(); }
};

/// A model that is trained under DDP with a hook.
template <class Hook>
struct Trained {
  using Strategy = DDPWith<Hook>;

  Trained(const typename Strategy::Config& config, Group& group) : flat{model}, ddp{config, group} { ddp.attach(flat); }

  void backward(const Gradients_& gradients) {
    ddp.begin_backward(Sync::now);
    model.forward(gradients).backward();
    ddp.finish_backward();
  }
  /// Runs backward, and a step of plain gradient descent.
  void step(const Gradients_& gradients, double learning_rate) {
    backward(gradients);
    for (const auto& slice : ddp.slices()) at::Tensor{slice.values}.sub_(slice.gradients, learning_rate);
    ddp.finish_step();
  }

  Given model;
  FlatModel flat;
  Strategy ddp;
};

std::string key(const std::string& first, int step, const std::string& last) {
  return first + "." + std::to_string(step) + "." + last;
}
std::string gradient_key(int step, int rank, const std::string& name) {
  return key("gradient." + std::to_string(step), rank, name);
}

/// Normally distributed numbers, none so small that half of it is subnormal in float16.
at::Tensor some_gradient(const at::Tensor& like) {
  const auto normal = at::randn(like.sizes());
  return at::where(normal.abs() < 1e-3, at::full_like(normal, 0.5), normal);
}

/// PyTorch's hooks on two ranks; Python runs once for all tests.
class HookParity : public testing::Test {
 protected:
  static constexpr int kSteps = 6;
  static constexpr int kStart = 2;

  static void SetUpTestSuite() {
    const TemporaryFolder folder;
    at::manual_seed(3);
    const Given model;
    for (const auto& item : model.named_parameters()) {
      for (int step = 0; step < kSteps; ++step)
        for (int rank = 0; rank < 2; ++rank)
          inputs().emplace(gradient_key(step, rank, item.key()), some_gradient(item.value()));
      if (item.value().dim() < 2) continue;
      const auto columns = item.value().numel() / item.value().size(0);
      for (const std::int64_t rank : {2, 4})
        inputs().emplace("q." + std::to_string(rank) + "." + item.key(), at::randn({columns, rank}));
    }
    for (const std::int64_t rank : {2, 4}) inputs().emplace("batched." + std::to_string(rank), at::randn({26, rank}));
    const auto given = folder / "given.safetensors", result = folder / "result.safetensors";
    write_safetensors(given, inputs(), {});
    run_python("../parallel/hooks_reference.py", {given.string(), result.string()});
    expected() = read_safetensors(result, Checksum::optional).tensors;
  }

  static NamedTensors& inputs() {
    static NamedTensors tensors;
    return tensors;
  }
  static NamedTensors& expected() {
    static NamedTensors tensors;
    return tensors;
  }

  /// Runs the steps that Python has run, and calls check(step, ours, theirs) for every gradient.
  template <class Hook, class Prepare, class Check>
  static void compare(const std::string& name, const typename Hook::Config& config, Prepare prepare, Check check) {
    spawn_ranks(2, [&](Group& group) {
      Trained<Hook> trained{{.hook = config}, group};
      prepare(trained.ddp);
      for (int step = 0; step < kSteps; ++step) {
        Gradients_ gradients;
        for (const auto& item : trained.model.named_parameters())
          gradients.emplace_back(item.key(), inputs().at(gradient_key(step, group.rank(), item.key())));
        trained.backward(gradients);
        for (const auto& item : trained.model.named_parameters())
          check(step, item.value().grad(), expected().at(key(name, step, item.key())));
      }
    });
  }

  template <class Hook>
  static void expect_same_bits(const std::string& name) {
    compare<Hook>(
        name, {}, [](auto&) {},
        [&](int step, const at::Tensor& ours, const at::Tensor& theirs) {
          EXPECT_TRUE(at::equal(ours, theirs)) << name << " step " << step;
        });
  }

  static void expect_close_power_sgd(std::int64_t rank) {
    const auto case_name = "power_sgd_" + std::to_string(rank);
    compare<PowerSGD>(
        case_name, {.matrix_rank = rank, .start_step = kStart, .min_compression_rate = 1.0},
        [&](auto& ddp) {
          const auto& entries = ddp.trainable().entries();
          for (std::size_t i = 0; i < entries.size(); ++i) {
            const auto q = inputs().find("q." + std::to_string(rank) + "." + entries[i].name);
            EXPECT_EQ(ddp.hook().compresses(i), q != inputs().end()) << entries[i].name;
            if (q != inputs().end()) ddp.hook().set_q(i, q->second);
          }
        },
        [&](int step, const at::Tensor& ours, const at::Tensor& theirs) {
          EXPECT_TRUE(at::allclose(ours, theirs, 1e-4, 1e-5)) << case_name << " step " << step;
        });
  }

  static void expect_close_batched_power_sgd(std::int64_t rank) {
    const auto rank_text = std::to_string(rank);
    compare<BatchedPowerSGD>(
        "batched_" + rank_text, {.matrix_rank = rank, .start_step = kStart},
        [&](auto& ddp) { ddp.hook().set_q(0, inputs().at("batched." + rank_text)); },
        [&](int step, const at::Tensor& ours, const at::Tensor& theirs) {
          EXPECT_TRUE(at::allclose(ours, theirs, 1e-4, 1e-5)) << "rank " << rank << " step " << step;
        });
  }
};

TEST_F(HookParity, FP16CompressEqualsPyTorchsBitForBit) { expect_same_bits<FP16Compress>("fp16"); }
TEST_F(HookParity, BF16CompressEqualsPyTorchsBitForBit) { expect_same_bits<BF16Compress>("bf16"); }
TEST_F(HookParity, QuantizeEqualsPyTorchsBitForBit) { expect_same_bits<Quantize>("quantize"); }
TEST_F(HookParity, PowerSGDOfRankTwoAgreesWithPyTorchs) { expect_close_power_sgd(2); }
TEST_F(HookParity, PowerSGDOfRankFourAgreesWithPyTorchs) { expect_close_power_sgd(4); }
TEST_F(HookParity, BatchedPowerSGDOfRankTwoAgreesWithPyTorchs) { expect_close_batched_power_sgd(2); }
TEST_F(HookParity, BatchedPowerSGDOfRankFourAgreesWithPyTorchs) { expect_close_batched_power_sgd(4); }

/// Random gradients that differ between ranks and steps, and their mean over the ranks.
Gradients_ gradients_of_rank(int rank, int step) {
  at::manual_seed(static_cast<std::uint64_t>(100 * step + rank));
  Gradients_ gradients;
  for (const auto& item : Given{}.named_parameters()) gradients.emplace_back(item.key(), some_gradient(item.value()));
  return gradients;
}
Gradients_ mean_gradients(int ranks, int step) {
  auto mean = gradients_of_rank(0, step);
  for (int rank = 1; rank < ranks; ++rank) {
    const auto more = gradients_of_rank(rank, step);
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i].second = mean[i].second + more[i].second;
  }
  for (auto& [name, gradient] : mean) gradient = gradient / ranks;
  return mean;
}

/// The relative distance of a from b.
double distance(const at::Tensor& a, const at::Tensor& b) { return ((a - b).norm() / b.norm()).item<double>(); }

template <class Hook>
class AveragingHook : public testing::Test {
 public:
  static constexpr bool kBatched = std::is_same_v<Hook, BatchedPowerSGD>;
  static constexpr bool kPowerSGD = kBatched || std::is_same_v<Hook, PowerSGD> || std::is_same_v<Hook, BF16PowerSGD>;
};
using AveragingHooks = testing::Types<AllReduce, FP16Compress, BF16Compress, PowerSGD, BatchedPowerSGD, BF16PowerSGD,
                                      Quantize, PostLocalSGD>;
TYPED_TEST_SUITE(AveragingHook, AveragingHooks);

TYPED_TEST(AveragingHook, LeavesAllRanksTheSameBitsInEveryBucket) {
  for (const int world : {1, 3})
    spawn_ranks(world, [&](Group& group) {
      typename DDPWith<TypeParam>::Config config;
      const DDPConfig bucket_each{.bucket_bytes_list = {1}};
      if constexpr (std::is_same_v<TypeParam, AllReduce>)
        config = bucket_each;
      else
        config.ddp = bucket_each;
      if constexpr (TestFixture::kPowerSGD) config.hook.start_step = 1;
      Trained<TypeParam> trained{config, group};
      for (int step = 0; step < 3; ++step) {
        trained.backward(gradients_of_rank(group.rank(), step));
        for (const auto& [name, mean] : mean_gradients(world, step)) {
          const auto mine = trained.model.gradient(name);
          auto bits = mine.clone();
          broadcast(bits, group);
          EXPECT_TRUE(at::equal(bits, mine)) << name;
          const bool whole = !TestFixture::kPowerSGD || step == 0 || (name == "bias" && !TestFixture::kBatched);
          EXPECT_LT(distance(mine, mean), whole ? 0.02 : 2.0) << name << " step " << step;
          EXPECT_GT(mine.norm().template item<double>(), 0) << name << " step " << step;
          // The first compressed gradient is the part of the mean along a direction; later ones also have what the
          // earlier ones left out.
          if (step == 1) EXPECT_GT((mine * mean).sum().template item<double>(), 0) << name;
        }
      }
    });
}

TYPED_TEST(AveragingHook, AddsUpMicroSteps) {
  spawn_ranks(2, [&](Group& group) {
    Trained<TypeParam> trained{{}, group};
    trained.ddp.begin_backward(Sync::defer);
    trained.model.forward(gradients_of_rank(group.rank(), 0)).backward();
    trained.ddp.finish_backward();
    trained.backward(gradients_of_rank(group.rank(), 1));
    const auto first = mean_gradients(2, 0), second = mean_gradients(2, 1);
    for (std::size_t i = 0; i < first.size(); ++i)
      EXPECT_LT(distance(trained.model.gradient(first[i].first), first[i].second + second[i].second), 0.02);
  });
}

/// The distance from the true mean of the ranks to the mean of a hook's results for one gradient over many steps.
template <class Hook>
double drift(Group& group, int steps, bool error_feedback) {
  typename Hook::Config config;
  config.start_step = 0;
  config.error_feedback = error_feedback;
  if constexpr (requires { config.min_compression_rate; }) config.min_compression_rate = 1.0;
  Trained<Hook> trained{{.hook = config}, group};
  auto sum = at::zeros({24, 16});
  for (int step = 0; step < steps; ++step) {
    trained.backward(gradients_of_rank(group.rank(), 0));
    sum += trained.model.gradient("matrix");
  }
  return distance(sum / steps, mean_gradients(group.size(), 0).at(0).second);
}

template <class Hook>
void expect_that_error_feedback_gives_back() {
  spawn_ranks(2, [](Group& group) {
    ASSERT_EQ(mean_gradients(2, 0).at(0).first, "matrix");
    const auto without = drift<Hook>(group, 20, false), after_20 = drift<Hook>(group, 20, true),
               after_80 = drift<Hook>(group, 80, true);
    EXPECT_GT(without, 0.6);
    EXPECT_LT(after_20, 0.8 * without);
    EXPECT_LT(after_80, 0.4 * after_20);
  });
}
TEST(PowerSGDHook, ErrorFeedbackGivesBackWhatCompressionLost) { expect_that_error_feedback_gives_back<PowerSGD>(); }
TEST(BatchedPowerSGDHook, ErrorFeedbackGivesBackWhatCompressionLost) {
  expect_that_error_feedback_gives_back<BatchedPowerSGD>();
}

/// A backward pass of buckets of one parameter each, which throws before the last of them has its gradient.
template <class Hook>
void fail_backward(Trained<Hook>& trained, const Gradients_& gradients) {
  trained.ddp.begin_backward(Sync::now);
  auto matrix = trained.model.named_parameters()["matrix"];
  const auto hook = matrix.register_hook([](const at::Tensor&) { throw Error{Errc::data, "late in backward"}; });
  EXPECT_THROW(trained.model.forward(gradients).backward(), Error);
  matrix.remove_hook(hook);
}

template <class Hook>
void expect_that_a_step_tried_again_adds_no_error_of_the_first_try() {
  spawn_ranks(2, [](Group& group) {
    typename DDPWith<Hook>::Config config{.ddp = {.bucket_bytes_list = {1}}};
    config.hook.start_step = 0;
    Trained<Hook> trained{config, group}, reference{config, group};
    for (int step = 0; step < 3; ++step) {
      const auto gradients = gradients_of_rank(group.rank(), step);
      if (step == 1) fail_backward(trained, gradients);
      trained.backward(gradients);
      reference.backward(gradients);
      for (const auto* name : {"kernel", "bias"})
        EXPECT_LT(distance(trained.model.gradient(name), reference.model.gradient(name)), 1e-3)
            << name << " step " << step;
    }
  });
}
TEST(PowerSGDHook, AStepTriedAgainAddsNoErrorOfTheFirstTry) {
  expect_that_a_step_tried_again_adds_no_error_of_the_first_try<PowerSGD>();
}
TEST(BatchedPowerSGDHook, AStepTriedAgainAddsNoErrorOfTheFirstTry) {
  expect_that_a_step_tried_again_adds_no_error_of_the_first_try<BatchedPowerSGD>();
}

/// Expects that the gradients of a step are the means of the ranks' own, as they are before the hook's start_step, or
/// that they are not.
template <class Hook>
void expect_averaged(Trained<Hook>& trained, int step, bool averaged) {
  const auto mean = mean_gradients(2, step).at(1).second;
  EXPECT_EQ(distance(trained.model.gradient("kernel"), mean) < 0.02, averaged) << "step " << step;
}

template <class Hook>
class CountingHook : public testing::Test {};
using CountingHooks =
    testing::Types<PowerSGD, BatchedPowerSGD, PostLocalSGD, BF16PowerSGD, Compress<at::kHalf, BatchedPowerSGD>>;
TYPED_TEST_SUITE(CountingHook, CountingHooks);

TYPED_TEST(CountingHook, DoesNotCountAStepThatFailsAfterItsFirstBucketOrBeforeIt) {
  spawn_ranks(2, [](Group& group) {
    typename DDPWith<TypeParam>::Config config{.ddp = {.bucket_bytes_list = {1}}};
    config.hook.start_step = 2;
    Trained<TypeParam> trained{config, group};
    for (int step = 0; step < 3; ++step) {
      const auto gradients = gradients_of_rank(group.rank(), step);
      fail_backward(trained, gradients);
      trained.ddp.begin_backward(Sync::now);  // ends without a gradient, as after an exception in forward
      trained.backward(gradients);
      expect_averaged(trained, step, step < 2);
    }
  });
}

TYPED_TEST(CountingHook, CountsFromTheStepAtWhichItResumesAlsoAfterAStepThatFailed) {
  spawn_ranks(2, [](Group& group) {
    typename DDPWith<TypeParam>::Config config{.ddp = {.bucket_bytes_list = {1}}};
    config.hook.start_step = 6;
    Trained<TypeParam> trained{config, group};
    fail_backward(trained, gradients_of_rank(group.rank(), 0));
    trained.ddp.resume_at(5);
    for (const int step : {5, 6}) {
      trained.backward(gradients_of_rank(group.rank(), step));
      expect_averaged(trained, step, step < 6);
    }
  });
}

TYPED_TEST(CountingHook, DoesNotCountAStepThatIsRefusedForAParameterWithoutAGradient) {
  spawn_ranks(2, [](Group& group) {
    typename DDPWith<TypeParam>::Config config{.ddp = {.bucket_bytes_list = {1}}};
    config.hook.start_step = 2;
    Trained<TypeParam> trained{config, group};
    for (int step = 0; step < 3; ++step) {
      const auto gradients = gradients_of_rank(group.rank(), step);
      EXPECT_THROW(trained.backward({{"bias", at::ones({16})}}), Error);
      trained.backward(gradients);
      expect_averaged(trained, step, step < 2);
    }
  });
}

TYPED_TEST(CountingHook, KeepsNothingOfTheStepsThatAResumeHasDropped) {
  spawn_ranks(2, [](Group& group) {
    typename DDPWith<TypeParam>::Config config;
    config.hook.start_step = 0;
    Trained<TypeParam> trained{config, group}, fresh{config, group};
    for (int step = 0; step < 3; ++step) {
      auto gradients = gradients_of_rank(group.rank(), step);
      for (auto& [name, gradient] : gradients) gradient.mul_(1000);  // as those of a training that diverges
      trained.backward(gradients);
    }
    trained.ddp.resume_at(0);
    for (int step = 0; step < 2; ++step) {
      const auto gradients = gradients_of_rank(group.rank(), step);
      trained.backward(gradients);
      fresh.backward(gradients);
      for (const auto* name : {"matrix", "kernel", "bias"})
        EXPECT_TRUE(at::equal(trained.model.gradient(name), fresh.model.gradient(name))) << name << " step " << step;
    }
  });
}

TEST(BatchedPowerSGDHook, ABucketOfLowRankArrivesWholeAlsoAfterAStepOfZeros) {
  for (const std::int64_t rank : {1, 2, 3})
    spawn_ranks(2, [&](Group& group) {
      Trained<BatchedPowerSGD> trained{{.ddp = {.bucket_bytes_list = {1}, .find_unused_parameters = true},
                                        .hook = {.matrix_rank = rank, .start_step = 0}},
                                       group};
      for (const double value : {0.0, 2.0, 0.0, -3.0}) {
        trained.backward({{"bias", at::full({16}, value)}});  // as a 4 x 4 matrix this gradient has rank 1
        EXPECT_TRUE(at::allclose(trained.model.gradient("bias"), at::full({16}, value), 1e-4, 1e-5)) << value;
        EXPECT_TRUE(at::equal(trained.model.gradient("matrix"), at::zeros({24, 16})));
      }
    });
}

TEST(BatchedPowerSGDHook, RefusesAQOfAnotherShapeThanTheBuckets) {
  Group alone;
  Trained<BatchedPowerSGD> trained{{}, alone};
  EXPECT_THROW(trained.ddp.hook().set_q(0, at::zeros({26, 2})), Error);
  EXPECT_THROW(trained.ddp.hook().set_q(0, at::zeros({25, 1})), Error);
  EXPECT_NO_THROW(trained.ddp.hook().set_q(0, at::zeros({26, 1})));
}

at::Tensor outer(int seed) {
  at::manual_seed(static_cast<std::uint64_t>(seed));
  return at::outer(at::rand({24}), at::rand({16}));
}

TEST(PowerSGDHook, AGradientOfLowRankArrivesWholeAlsoWhereTheRankIsLowerThanAllowed) {
  for (const int world : {1, 2})
    for (const std::int64_t rank : {2, 3})
      spawn_ranks(world, [&](Group& group) {
        Trained<PowerSGD> trained{{.ddp = {.find_unused_parameters = true},
                                   .hook = {.matrix_rank = rank, .start_step = 0, .min_compression_rate = 1.0}},
                                  group};
        for (int step = 0; step < 4; ++step) {
          trained.backward({{"matrix", outer(10 * step + group.rank())}});
          auto mean = outer(10 * step);
          if (world == 2) mean = (mean + outer(10 * step + 1)) / 2;
          EXPECT_LT(distance(trained.model.gradient("matrix"), mean), 1e-4) << "step " << step << " rank " << rank;
        }
      });
}

TEST(PowerSGDHook, AStepOfZerosDoesNoHarm) {
  for (const std::int64_t rank : {1, 2, 3})
    spawn_ranks(2, [&](Group& group) {
      Trained<PowerSGD> trained{{.ddp = {.find_unused_parameters = true},
                                 .hook = {.matrix_rank = rank, .start_step = 0, .min_compression_rate = 1.0}},
                                group};
      const std::vector<at::Tensor> course{at::zeros({24, 16}), outer(0), at::zeros({24, 16}),
                                           at::zeros({24, 16}), outer(1), outer(2)};
      for (const auto& gradient : course) {
        trained.backward({{"matrix", gradient}});
        const auto got = trained.model.gradient("matrix");
        EXPECT_LT((got - gradient).norm().item<double>(), 1e-4 * (1 + gradient.norm().item<double>())) << rank;
      }
    });
}

TEST(PowerSGDHook, RefusesAQThatFitsNoCompressedParameter) {
  Group alone;
  Trained<PowerSGD> trained{{}, alone};
  // Parameter 0 is the bias, which is not compressed.
  EXPECT_THROW(trained.ddp.hook().set_q(0, at::zeros({16, 1})), Error);
  EXPECT_THROW(trained.ddp.hook().set_q(2, at::zeros({16, 2})), Error);
  EXPECT_NO_THROW(trained.ddp.hook().set_q(2, at::zeros({16, 1})));
}

TEST(QuantizeHook, IsOffByHalfAStepAtMost) {
  spawn_ranks(3, [](Group& group) {
    Trained<Quantize> trained{{.ddp = {.bucket_bytes_list = {1}}}, group};
    trained.backward(gradients_of_rank(group.rank(), 0));
    for (const auto& [name, mean] : mean_gradients(3, 0)) {
      double bound = 0;
      for (int rank = 0; rank < 3; ++rank)
        for (const auto& [other, gradient] : gradients_of_rank(rank, 0))
          if (other == name) bound += (gradient.max() - gradient.min()).item<double>() / 255 / 2 / 3;
      const auto error = (trained.model.gradient(name) - mean).abs().max().item<double>();
      EXPECT_LT(error, 1.01 * bound) << name;
      EXPECT_GT(error, 0.1 * bound) << "the hook did not round the gradients";
    }
  });
}

TEST(QuantizeHook, ChannelsKeepAnOutlierToItself) {
  spawn_ranks(2, [](Group& group) {
    auto gradients = gradients_of_rank(group.rank(), 0), mean = mean_gradients(2, 0);
    for (auto* list : {&gradients, &mean}) list->at(0).second[0][0] = 1e4;
    double errors[2];
    for (const std::int64_t channel : {0, 7}) {
      Trained<Quantize> trained{{.hook = {.channel = channel}}, group};
      trained.backward(gradients);
      errors[channel == 0 ? 0 : 1] = distance(trained.model.gradient("matrix")[1], mean.at(0).second[1]);
    }
    EXPECT_GT(errors[0], 0.5);
    EXPECT_LT(errors[1], 0.02);
  });
}

TEST(QuantizeHook, AChannelIsNoLargerThanItsBucket) {
  spawn_ranks(2, [](Group& group) {
    Trained<Quantize> huge{{.hook = {.channel = std::int64_t{1} << 60}}, group}, whole{{}, group};
    const auto gradients = gradients_of_rank(group.rank(), 0);
    huge.backward(gradients);
    whole.backward(gradients);
    for (const auto& [name, gradient] : gradients)
      EXPECT_TRUE(at::equal(huge.model.gradient(name), whole.model.gradient(name))) << name;
  });
}

TEST(QuantizeHook, ANumberThatIsNotFiniteStaysSoOnAllRanks) {
  spawn_ranks(2, [](Group& group) {
    Trained<Quantize> trained{{}, group};
    for (const double bad : {std::nan(""), HUGE_VAL}) {
      auto gradients = gradients_of_rank(group.rank(), 0);
      if (group.rank() == 1) gradients.at(0).second[0][0] = bad;
      trained.backward(gradients);
      EXPECT_FALSE(trained.model.gradient("matrix").sum().isfinite().item<bool>());
    }
  });
}

TEST(QuantizeHook, SendsABucketWithoutElements) {
  struct Empty : torch::nn::Module {
    Empty() {
      empty = register_parameter("empty", at::zeros({0}));  // in the last bucket, since gradients come in reverse
      weight = register_parameter("weight", at::zeros({16}));
    }
    at::Tensor empty, weight;
  };
  for (const std::int64_t channel : {0, 4})
    spawn_ranks(2, [&](Group& group) {
      Empty model;
      FlatModel flat{model};
      DDPWith<Quantize> ddp{{.ddp = {.bucket_bytes_list = {1}}, .hook = {.channel = channel}}, group};
      ddp.attach(flat);
      ddp.begin_backward(Sync::now);
      ((model.weight * (group.rank() + 1)).sum() + model.empty.sum()).backward();
      ddp.finish_backward();
      EXPECT_TRUE(at::allclose(model.weight.grad(), at::full({16}, 1.5), 1e-2));
      EXPECT_EQ(model.empty.grad().numel(), 0);
    });
}

TEST(QuantizeHook, SendsSmallNumbersAndZerosOfSixteenBits) {
  spawn_ranks(2, [](Group& group) {
    Trained<Compress<at::kHalf, Quantize>> trained{{.ddp = {.bucket_bytes_list = {1}}}, group};
    for (const double value : {0.0, 4e-6, -4e-6}) {
      auto gradients = gradients_of_rank(group.rank(), 0);
      for (auto& [name, gradient] : gradients) gradient.fill_(value);
      trained.backward(gradients);
      for (const auto& [name, gradient] : gradients)
        EXPECT_TRUE(at::allclose(trained.model.gradient(name), gradient, 0.1, 0.0)) << name << ' ' << value;
    }
  });
}

TEST(NoSyncHook, LeavesEachRankItsOwnGradients) {
  spawn_ranks(3, [](Group& group) {
    Trained<NoSync> trained{{}, group};
    const auto gradients = gradients_of_rank(group.rank(), 0);
    trained.backward(gradients);
    for (const auto& [name, gradient] : gradients) EXPECT_TRUE(at::equal(trained.model.gradient(name), gradient));
  });
}

/// Whether all ranks hold the bits of rank 0.
bool same_on_all_ranks(const at::Tensor& tensor, Group& group) {
  auto bits = tensor.detach().clone();
  broadcast(bits, group);
  auto differ = at::full({1}, at::equal(bits, tensor) ? 0 : 1);
  all_reduce(differ, group);
  return differ.item<int>() == 0;
}

/// Replaces the values for a while, as an evaluation with averaged parameters does; the hook must not count that as a
/// step.
void evaluate_with_other_values(DDPWith<PostLocalSGD>& ddp) {
  std::vector<at::Tensor> own;
  for (const auto& slice : ddp.slices()) {
    own.push_back(slice.values.clone());
    at::Tensor{slice.values}.fill_(ddp.group().rank());
  }
  ddp.finish_step();
  for (std::size_t i = 0; i < own.size(); ++i) {
    EXPECT_TRUE(at::equal(ddp.slices()[i].values, at::full_like(own[i], ddp.group().rank())));
    at::Tensor{ddp.slices()[i].values}.copy_(own[i]);
  }
  ddp.finish_step();
}

TEST(PostLocalSGDHook, AveragesGradientsFirstAndParametersEveryPeriodFromThenOn) {
  constexpr int kStart = 2, kPeriod = 3;
  spawn_ranks(3, [](Group& group) {
    Trained<PostLocalSGD> trained{{.hook = {.start_step = kStart, .period = kPeriod}}, group};
    std::vector<at::Tensor> expected(3, at::zeros({24, 16}));  // the expected values of each rank
    for (int step = 0; step < 10; ++step) {
      trained.step(gradients_of_rank(group.rank(), step), 0.1);
      evaluate_with_other_values(trained.ddp);

      for (int rank = 0; rank < 3; ++rank)
        expected[static_cast<std::size_t>(rank)] =
            expected[static_cast<std::size_t>(rank)] -
            0.1 * (step < kStart ? mean_gradients(3, step) : gradients_of_rank(rank, step)).at(0).second;
      const bool averages = step >= kStart && (step - kStart) % kPeriod == 0;
      if (averages) expected.assign(3, (expected[0] + expected[1] + expected[2]) / 3);
      const auto matrix = trained.model.named_parameters()["matrix"];
      EXPECT_TRUE(at::allclose(matrix, expected[static_cast<std::size_t>(group.rank())], 1e-5, 1e-6)) << step;
      EXPECT_EQ(same_on_all_ranks(matrix, group), step < kStart || averages) << step;
    }
  });
}

TEST(PostLocalSGDHook, NeighboursGoOnAveragingGradients) {
  spawn_ranks(4, [](Group& group) {
    Trained<PostLocalSGD> trained{{.hook = {.start_step = 0, .period = 100, .local_ranks = 2}}, group};
    trained.step(gradients_of_rank(group.rank(), 0), 0.1);  // the period begins with an average
    trained.backward(gradients_of_rank(group.rank(), 1));
    const auto first = group.rank() / 2 * 2;
    const auto expected = (gradients_of_rank(first, 1).at(0).second + gradients_of_rank(first + 1, 1).at(0).second) / 2;
    EXPECT_TRUE(at::allclose(trained.model.gradient("matrix"), expected, 1e-5, 1e-6));
  });
}

TEST(PostLocalSGDHook, RefusesNeighboursThatDoNotDivideTheRanks) {
  spawn_ranks(4, [](Group& group) {
    for (const std::int64_t ranks : {3L, 0L, (1L << 32) + 2})
      EXPECT_THROW((DDPWith<PostLocalSGD>{{.hook = {.local_ranks = ranks}}, group}), Error) << ranks;
  });
}

TEST(PostLocalSGDHook, GoesOnFromTheStepOfASnapshot) {
  spawn_ranks(2, [](Group& group) {
    Trained<PostLocalSGD> trained{{.hook = {.start_step = 5}}, group};
    trained.ddp.resume_at(5);
    trained.backward(gradients_of_rank(group.rank(), 0));
    EXPECT_TRUE(at::equal(trained.model.gradient("bias"), gradients_of_rank(group.rank(), 0).at(2).second));
  });
}

TEST(HookedDDPConfig, IsAConfigOfDDPAndOfTheHook) {
  std::vector<std::string> paths;
  for (const auto& setting : settings_of(HookedDDPConfig<BF16PowerSGD>{})) paths.push_back(setting.path);
  for (const char* path : {"ddp.static_graph", "ddp.bucket_bytes_list", "hook.matrix_rank", "hook.start_step"})
    EXPECT_NE(std::find(paths.begin(), paths.end(), path), paths.end()) << path;
  EXPECT_FALSE(settings_of(HookedDDPConfig<FP16Compress>{}).empty());
}

}  // namespace
}  // namespace ddpxx::comm_hooks_test
