// The moving average of the parameters, compared with torch.optim.swa_utils, over memory that is whole or cut into
// pieces.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/intercepted_operations.hpp>
#include <ddpxx/optim/ema.hpp>

#include "../error_of.hpp"

namespace ddpxx::ema_test {
namespace {

at::Tensor leaf(at::Tensor values) { return values.set_requires_grad(true); }

/// The averages of a parameter whose value after step n is [1, -2, 0.5] · n².
std::vector<at::Tensor> averages_of_squares(const EMAConfig& config, int steps) {
  const auto direction = at::tensor({1.0F, -2.0F, 0.5F});
  const Arena arena{{{"a", leaf(at::full({3}, 7.0F))}}};  // values before the first update must not count
  EMA ema{config, arena.slices()};
  std::vector<at::Tensor> averages;
  for (int n = 1; n <= steps; ++n) {
    arena[0].parameter.detach().copy_(direction * n * n);
    ema.update();
    averages.push_back(Arena::part(ema.average().slices[0], arena[0]).clone());
  }
  return averages;
}

// What this prints, once with decay=0.999 and once with decay=0.9:
//   model = Linear(3, 1, bias=False); averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
//   for n in range(1, 7):
//     with no_grad(): model.weight.copy_(tensor([[1.0, -2.0, 0.5]]) * n * n)
//     averaged.update_parameters(model); print(averaged.module.weight.tolist())
TEST(EMA, IsTorchsAveragedModel) {
  constexpr std::array kSlow{
      1.0, 1.003000020980835, 1.0109970569610596, 1.0259860754013062, 1.0499601364135742, 1.0849101543426514};
  constexpr std::array kFast{
      1.0, 1.2999999523162842, 2.069999933242798, 3.4630000591278076, 5.616700172424316, 8.655030250549316};
  const auto slow = averages_of_squares({.decay = 0.999}, 6), fast = averages_of_squares({.decay = 0.9}, 6);
  for (std::size_t i = 0; i < slow.size(); ++i) {
    // The other elements are the first one times a power of two, so rounding does not change the ratio of the averages.
    const auto scale = at::tensor({1.0, -2.0, 0.5}, at::kDouble);
    EXPECT_TRUE(at::allclose(slow[i].to(at::kDouble), scale * kSlow[i], 3e-7, 0)) << i << '\n' << slow[i];
    EXPECT_TRUE(at::allclose(fast[i].to(at::kDouble), scale * kFast[i], 3e-7, 0)) << i << '\n' << fast[i];
  }
}

TEST(EMA, KeepsLessInItsFirstStepsWhenWarmedUp) {
  const auto averages = averages_of_squares({.decay = 0.3, .warmup = true}, 6);
  double expected = 1.0;
  for (int done = 1; done < 6; ++done) {
    // The rates 2/11 and 3/12, and then 0.3, which is below 4/13.
    const double keep = std::min(0.3, (1.0 + done) / (10.0 + done));
    expected = keep * expected + (1 - keep) * (done + 1) * (done + 1);
    EXPECT_NEAR(averages[static_cast<std::size_t>(done)][0].item<double>(), expected, 1e-6 * expected) << done;
  }
  EXPECT_TRUE(at::equal(averages_of_squares({.decay = 0.15, .warmup = true}, 6).back(),
                        averages_of_squares({.decay = 0.15}, 6).back()));
}

std::vector<NamedParameter> random_parameters() {
  at::manual_seed(3);
  return {{"a", leaf(at::randn({5, 7})), 1, 0}, {"b", leaf(at::randn({3})), 1, 1}, {"c", leaf(at::randn({90})), 0, 0}};
}

/// Scales each value by a factor that depends on its offset in the arena; gaps stay zero.
void step(const Arena& arena, double by) {
  for (const auto& slice : arena.slices())
    at::Tensor{slice.values}.mul_(at::sin(at::arange(slice.begin, slice.end, at::kFloat) * by) + 2);
}

/// The average of one of `pieces` pieces of the memory after five steps.
at::Tensor average_of_piece(int pieces, int piece) {
  const Arena arena{random_parameters(), {.masters = Masters::apart, .pieces = pieces, .piece = piece}};
  EMA ema{{.decay = 0.7}, arena.slices()};
  for (int i = 1; i <= 5; ++i) {
    step(arena, i);
    ema.update();
  }
  return at::cat(ema.average().slices);
}

TEST(EMA, OfPiecesEqualsThePiecesOfTheWhole) {
  const auto together = at::cat({average_of_piece(3, 0), average_of_piece(3, 1), average_of_piece(3, 2)});
  const auto whole = average_of_piece(1, 0);
  const auto size = whole.numel();
  EXPECT_TRUE(at::allclose(together.narrow(0, 0, size), whole, 1e-6, 0));
  EXPECT_TRUE(at::equal(together.narrow(0, size, together.numel() - size), at::zeros({together.numel() - size})));
}

TEST(EMA, IsLaidOutLikeAMomentAndBeginsWithTheValues) {
  const Arena arena{random_parameters()};
  const EMA ema{{}, arena.slices()};
  EXPECT_EQ(ema.average().name, "ema");
  ASSERT_EQ(ema.average().slices.size(), arena.slices().size());
  for (std::size_t i = 0; i < arena.slices().size(); ++i) {
    EXPECT_TRUE(at::equal(ema.average().slices[i], arena.slices()[i].values));
    EXPECT_FALSE(ema.average().slices[i].is_alias_of(arena.slices()[i].values));
  }
}

TEST(EMA, GoesOnAfterAResumeAsIfItHadNeverStopped) {
  const Arena arena{random_parameters()};
  EMA through{{.decay = 0.9, .warmup = true}, arena.slices()};
  for (int i = 1; i <= 4; ++i) {
    step(arena, i);
    through.update();
  }
  EMA resumed{{.decay = 0.9, .warmup = true}, arena.slices()};
  for (std::size_t i = 0; i < arena.slices().size(); ++i)
    at::Tensor{resumed.average().slices[i]}.copy_(through.average().slices[i]);
  resumed.resume_at(through.steps_done());
  step(arena, 5);
  through.update();
  resumed.update();
  EXPECT_EQ(resumed.steps_done(), 5);
  for (std::size_t i = 0; i < arena.slices().size(); ++i)
    EXPECT_TRUE(at::equal(resumed.average().slices[i], through.average().slices[i]));
}

TEST(AverageScope, ShowsTheModelItsAverageAndGivesTheValuesBackBitForBit) {
  // More elements than swap() exchanges at a time, and not a multiple of that number.
  auto large = leaf(at::rand({(1 << 21) + 17})), small = leaf(at::rand({3}));
  const Arena arena{{{"large", large, 0, 0}, {"small", small, 0, 1}}};
  EMA ema{{.decay = 0.5}, arena.slices()};
  ema.update();
  step(arena, 1);
  ema.update();
  const auto value = large.detach().clone(), small_value = small.detach().clone();
  const auto average = Arena::part(ema.average().slices[0], arena[0]).clone();
  ASSERT_FALSE(at::equal(value, average));
  {
    const AverageScope scope{ema};
    EXPECT_TRUE(at::equal(large.detach(), average));
    EXPECT_TRUE(at::equal(Arena::part(ema.average().slices[0], arena[0]), value));
    EXPECT_FALSE(at::equal(small.detach(), small_value));
    EXPECT_TRUE(large.requires_grad() && large.is_leaf());
    arena.check_owned();
    EXPECT_THROW(ema.update(), Error);
  }
  EXPECT_TRUE(at::equal(large.detach(), value));
  EXPECT_TRUE(at::equal(small.detach(), small_value));
  EXPECT_TRUE(at::equal(Arena::part(ema.average().slices[0], arena[0]), average));
  ema.update();
}

TEST(AverageScope, KeepsTheExceptionThatEndsItWhereTheValuesCannotComeBack) {
  const Arena arena{{{"a", leaf(at::zeros({3}))}}};
  EMA ema{{}, arena.slices()};
  EXPECT_EQ(error_of([&] {
              std::optional<InterceptedOperations> lost_device;
              const AverageScope scope{ema};
              // As after an error of a GPU, where each later operation fails.
              lost_device.emplace([](const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack&) {
                throw Error{Errc::peer, "the device is lost"};
              });
              throw Error{Errc::peer, "the first error"};
            }),
            "the first error");
}

TEST(EMA, WithoutParametersIsEmpty) {
  EMA ema{{}, {}};
  ema.update();
  ema.update();
  ema.swap();
  EXPECT_TRUE(ema.average().slices.empty());
}

TEST(EMA, RefusesValuesInSixteenBitsWhichWouldNotChange) {
  const Arena arena{{{"a", leaf(at::ones({4}, at::kBFloat16))}}};
  try {
    const EMA ema{{}, arena.slices()};
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_STREQ(
        error.what(),
        "a moving average of BFloat16 parameters would not change, because small updates round to nothing: keep "
        "the parameters in float32, or set training.ema_decay=0");
  }
}

}  // namespace
}  // namespace ddpxx::ema_test
