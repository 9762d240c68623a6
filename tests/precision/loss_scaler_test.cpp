// The scale of the loss compared with torch.amp.GradScaler, number by number.
#include <concepts>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/precision/loss_scaler.hpp>

#include "../parity/python.hpp"

namespace ddpxx::loss_scaler_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Case {
  LossScalerConfig config = {};
  int steps = 30;
  std::map<int, float> bad = {};  ///< The steps in which an element of the gradient is inf or NaN, with that value.
};

/// A case in which every step overflows.
Case overflowing(const LossScalerConfig& config) {
  Case result{.config = config};
  for (int step = 0; step < result.steps; ++step) result.bad[step] = kInf;
  return result;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> result{
      {.config = {.growth_interval = 4}, .bad = {{0, kInf}, {6, -kInf}, {7, kNaN}, {11, kInf}, {29, kNaN}}},
      {.config = {}, .bad = {{3, kInf}, {4, kInf}}},
      // The scale is not a power of two: its reciprocal is rounded.
      {.config = {.initial_scale = 3.0, .growth_factor = 1.7, .backoff_factor = 0.3, .growth_interval = 2},
       .bad = {{5, kNaN}, {12, kInf}, {13, kInf}}},
      // The scale grows until one more step would make it inf.
      {.config = {.initial_scale = 1e30, .growth_factor = 1e4, .growth_interval = 1}},
      // The scale falls until it is zero.
      overflowing({.backoff_factor = 1e-3})};
  return result;
}

nlohmann::json to_json(const Case& one) {
  nlohmann::json bad = nlohmann::json::object();
  for (const auto& [step, value] : one.bad) bad[std::to_string(step)] = std::to_string(value);
  return {{"options",
           {{"init_scale", one.config.initial_scale},
            {"growth_factor", one.config.growth_factor},
            {"backoff_factor", one.config.backoff_factor},
            {"growth_interval", one.config.growth_interval}}},
          {"steps", one.steps},
          {"bad", bad}};
}

/// A weight in an arena's slice whose gradient in step s is (s + 1) times these numbers.
struct Model {
  at::Tensor coefficients = at::tensor({1.0F, -3.0F, 1e-30F, 7e-5F, 0.1F, -1e-42F, 0.0F, 12345.678F});
  at::Tensor weight = at::ones({8}).set_requires_grad(true);
  Arena arena{{{"weight", weight}}};

  void backward(const LossScaler& scaler, int step) const {
    const auto loss = (weight * (coefficients * (step + 1))).sum();
    loss.backward(scaler.scale(at::ones({})));
    gradient().copy_(weight.grad());
    weight.mutable_grad().reset();
  }
  at::Tensor gradient() const { return arena[0].gradient; }
};

at::Tensor state(const LossScaler& scaler, const std::string& name) {
  for (const auto& [key, tensor] : scaler.state())
    if (key == name) return tensor;
  throw std::out_of_range{name};
}

/// The bits of a float32 tensor, so that NaN is compared too.
nlohmann::json bits(const at::Tensor& tensor) {
  const auto words = tensor.reshape({-1}).view(at::kInt);
  return std::vector<int>(words.data_ptr<int>(), words.data_ptr<int>() + words.numel());
}

nlohmann::json run(const Case& one) {
  const Model model;
  LossScaler scaler{one.config, at::kCPU};
  nlohmann::json rows = nlohmann::json::array();
  for (int step = 0; step < one.steps; ++step) {
    model.backward(scaler, step);
    if (const auto bad = one.bad.find(step); bad != one.bad.end()) model.gradient()[3] = bad->second;
    nlohmann::json row{{"scaled", bits(model.gradient())}};
    const auto found_inf = scaler.unscale(model.arena.slices());
    scaler.update(found_inf);
    row["unscaled"] = bits(model.gradient());
    row["found_inf"] = bits(found_inf);
    row["scale"] = bits(state(scaler, "scale"));
    row["growth_tracker"] = {state(scaler, "growth_tracker").item<int>()};
    rows.push_back(row);
  }
  return rows;
}

/// Runs `steps` steps; the step numbered `bad` overflows.
void drive(LossScaler& scaler, int steps, int bad = -1) {
  const Model model;
  for (int step = 0; step < steps; ++step) {
    model.backward(scaler, step);
    if (step == bad) model.gradient().fill_(kInf);
    scaler.update(scaler.unscale(model.arena.slices()));
  }
}

double scale_of(const LossScaler& scaler) { return state(scaler, "scale").item<double>(); }

TEST(LossScaler, ThirtyStepsAreThoseOfTorchAmpGradScalerBitByBit) {
  nlohmann::json asked = nlohmann::json::array();
  for (const auto& one : cases()) asked.push_back(to_json(one));
  const auto python = nlohmann::json::parse(run_python("../precision/scaler_reference.py", {asked.dump()}));
  for (std::size_t i = 0; i < cases().size(); ++i) {
    const auto ours = run(cases()[i]);
    ASSERT_EQ(ours.size(), python[i].size());
    for (std::size_t step = 0; step < ours.size(); ++step)
      EXPECT_EQ(ours[step], python[i][step]) << "case " << i << ", step " << step;
  }
}

TEST(LossScaler, StartsWithTheDefaultsOfGradScaler) {
  const LossScaler scaler{{}, at::kCPU};
  EXPECT_TRUE(at::equal(state(scaler, "scale"), at::scalar_tensor(65536.0F)));
  EXPECT_TRUE(at::equal(state(scaler, "growth_tracker"), at::zeros({}, at::kInt)));
}

TEST(LossScaler, GrowsOnceAnIntervalHasGoneWell) {
  LossScaler scaler{{.initial_scale = 8.0, .growth_interval = 3}, at::kCPU};
  drive(scaler, 2);
  EXPECT_EQ(scale_of(scaler), 8.0);
  drive(scaler, 1);
  EXPECT_EQ(scale_of(scaler), 16.0);
  drive(scaler, 3);
  EXPECT_EQ(scale_of(scaler), 32.0);
}

TEST(LossScaler, AnOverflowHalvesTheScaleAndRestartsTheInterval) {
  LossScaler scaler{{.initial_scale = 8.0, .growth_interval = 3}, at::kCPU};
  drive(scaler, 3, /*bad=*/2);
  EXPECT_EQ(scale_of(scaler), 4.0);
  drive(scaler, 2);
  EXPECT_EQ(scale_of(scaler), 4.0);
  drive(scaler, 1);
  EXPECT_EQ(scale_of(scaler), 8.0);
}

TEST(LossScaler, FindsANumberThatIsNotFiniteInAnySlice) {
  const LossScaler scaler{{}, at::kCPU};
  for (const float bad : {kInf, -kInf, kNaN})
    for (int at = 0; at < 3; ++at) {
      std::vector<Slice> slices;
      for (int i = 0; i < 3; ++i) slices.push_back({at::ones({5}), at::ones({5})});
      slices[static_cast<std::size_t>(at)].gradients[4] = bad;
      EXPECT_TRUE(at::equal(scaler.unscale(slices), at::ones({})));
      for (const auto& slice : slices) EXPECT_TRUE(at::equal(slice.gradients.slice(0, 0, 4), at::full({4}, 0x1p-16F)));
    }
}

TEST(LossScaler, SlicesWithoutGradientsHoldNoOverflow) {
  const LossScaler scaler{{}, at::kCPU};
  EXPECT_TRUE(at::equal(scaler.unscale({}), at::zeros({})));
  EXPECT_TRUE(at::equal(scaler.unscale(std::vector<Slice>{{at::ones({5}), {}}}), at::zeros({})));
}

TEST(LossScaler, GoesOnFromACopiedState) {
  LossScaler whole{{.growth_interval = 4}, at::kCPU}, resumed{{.growth_interval = 4}, at::kCPU};
  drive(whole, 7, /*bad=*/4);  // two steps after the start of an interval
  for (const auto& [name, tensor] : resumed.state()) at::Tensor{tensor}.copy_(state(whole, name));
  for (int step = 0; step < 5; ++step) {
    drive(whole, 1);
    drive(resumed, 1);
    for (const auto& [name, tensor] : resumed.state()) EXPECT_TRUE(at::equal(tensor, state(whole, name))) << name;
  }
}

TEST(LossScaler, LeavesNoGraphBehind) {
  const LossScaler scaler{{}, at::kCPU};
  EXPECT_FALSE(scaler.scale(at::ones({})).requires_grad());
  static_assert(!std::copy_constructible<LossScaler>);
}

}  // namespace
}  // namespace ddpxx::loss_scaler_test
