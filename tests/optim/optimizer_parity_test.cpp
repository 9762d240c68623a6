// Optimizer steps and clipping, compared with torch.optim's fused implementations; schedules, compared with nanoGPT's
// formula.
#include <array>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <limits>
#include <numbers>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/optim/clip.hpp>
#include <ddpxx/optim/lamb.hpp>
#include <ddpxx/optim/lion.hpp>
#include <ddpxx/optim/muon.hpp>
#include <ddpxx/optim/parameter_group.hpp>
#include <ddpxx/optim/sgd.hpp>
#include <ddpxx/snapshot/safetensors.hpp>

#include "../parity/python.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::optimizer_parity_test {
namespace {

constexpr auto kSteps = 20;
constexpr auto kParameters = 3;

std::string key(const std::string& what, int i) { return what + "." + std::to_string(i); }
std::string key(const std::string& what, int step, int i) { return key(key(what, step), i); }

/// Three parameters with odd sizes, of which the first has weight decay, and their gradients in each step.
NamedTensors random_tensors() {
  at::manual_seed(11);
  NamedTensors tensors;
  for (int i = 0; i < kParameters; ++i) {
    const std::vector<std::int64_t> sizes{7 + 10 * i, 13};
    tensors.emplace(key("value", i), at::randn(sizes));
    for (int step = 0; step < kSteps; ++step) tensors.emplace(key("gradient", step, i), at::randn(sizes));
  }
  return tensors;
}

/// With as many groups as parameters, each parameter has its own.
Arena make_arena(const NamedTensors& tensors, std::span<const ParameterGroup> groups = kDecayGroups) {
  std::vector<NamedParameter> parameters;
  for (int i = 0; i < kParameters; ++i) {
    const auto group = i == 0 ? DecayGroup::decay : DecayGroup::no_decay;
    parameters.push_back({key("value", i), tensors.at(key("value", i)).clone().set_requires_grad(true), 0,
                          groups.size() == kParameters ? i : static_cast<int>(group)});
  }
  return Arena{parameters};
}

void set_gradients(const Arena& arena, const NamedTensors& tensors, int step) {
  for (int i = 0; i < kParameters; ++i)
    at::Tensor{arena[static_cast<std::size_t>(i)].gradient}.copy_(tensors.at(key("gradient", step, i)));
}

/// The matrix transform of a single process, which holds each matrix whole.
MatrixTransform transform_alone(const Arena& arena, std::vector<std::size_t> matrices) {
  std::vector<std::vector<std::int64_t>> shapes;
  for (const auto i : matrices) shapes.push_back(arena[i].shape);
  return [shapes](std::span<const at::Tensor> parts, const auto& change) {
    for (std::size_t i = 0; i < shapes.size(); ++i)
      at::Tensor{parts[i]}.copy_(change(parts[i].view(shapes[i])).reshape(-1));
  };
}

template <class Optimizer>
std::vector<at::Tensor> values_after(const NamedTensors& tensors, const typename Optimizer::Config& config,
                                     std::span<const ParameterGroup> groups = kDecayGroups) {
  const auto arena = make_arena(tensors, groups);
  const auto slices = arena.slices();
  auto optimizer = [&] {
    if constexpr (MatrixOptimizer<Optimizer>)
      return Optimizer{config, arena, transform_alone, groups};
    else if constexpr (ParameterOptimizer<Optimizer>)
      return Optimizer{config, arena, [](at::Tensor value) { return value; }, groups};
    else
      return Optimizer{config, slices, groups};
  }();
  for (int step = 0; step < kSteps; ++step) {
    set_gradients(arena, tensors, step);
    optimizer.step(config.learning_rate_at(step));
  }
  std::vector<at::Tensor> values;
  for (const auto& entry : arena.entries()) values.push_back(entry.parameter.detach());
  return values;
}

template <WeightDecay kDecay>
nlohmann::json options(const FusedAdamConfig<kDecay>& config) {
  return {{"lr", config.learning_rate},
          {"weight_decay", config.weight_decay},
          {"betas", {config.beta1, config.beta2}},
          {"eps", config.epsilon}};
}
nlohmann::json options(const LAMBConfig& config) {
  return {{"lr", config.learning_rate},
          {"weight_decay", config.weight_decay},
          {"betas", {config.beta1, config.beta2}},
          {"eps", config.epsilon}};
}
nlohmann::json options(const MuonConfig& config) {
  return {{"lr", config.learning_rate},
          {"weight_decay", config.weight_decay},
          {"momentum", config.momentum},
          {"nesterov", config.nesterov},
          {"eps", config.epsilon},
          {"ns_steps", config.iterations},
          {"adjust_lr_fn", config.scale == MuonScale::original ? "original" : "match_rms_adamw"}};
}
nlohmann::json options(const LionConfig& config) {
  return {{"lr", config.learning_rate}, {"weight_decay", config.weight_decay}, {"betas", {config.beta1, config.beta2}}};
}
nlohmann::json options(const SGDConfig& config) {
  return {{"lr", config.learning_rate},
          {"weight_decay", config.weight_decay},
          {"momentum", config.momentum},
          {"dampening", config.dampening},
          {"nesterov", config.nesterov}};
}

/// The settings of one optimizer for Python, and a function that runs it in C++.
struct Case {
  bool has_equal_bits;  ///< Whether both languages call one operation with equal numbers.
  nlohmann::json python;
  std::function<std::vector<at::Tensor>(const NamedTensors&)> run;
};
template <class Optimizer>
Case make_case(const char* name, const char* kind, const typename Optimizer::Config& config) {
  constexpr bool kCallsOneOperation =
      std::is_same_v<Optimizer, AdamW> || std::is_same_v<Optimizer, Adam> || std::is_same_v<Optimizer, SGD>;
  return {kCallsOneOperation,
          {{"name", name}, {"kind", kind}, {"options", options(config)}},
          [config](const NamedTensors& tensors) { return values_after<Optimizer>(tensors, config); }};
}

/// A case in which both languages use their default settings.
template <class Optimizer>
Case make_default_case(const char* kind) {
  auto result = make_case<Optimizer>((std::string{kind} + " by default").c_str(), kind, {});
  result.python["options"] = nlohmann::json::object();
  return result;
}

/// Parameter 0 is stepped as the config says, the others with settings of their own, and the learning rate of the
/// schedule that the config has.
template <class Optimizer>
Case make_case_of_groups(const char* name, const char* kind, const typename Optimizer::Config& config) {
  auto result = make_case<Optimizer>(name, kind, config);
  result.has_equal_bits = false;  // the learning rates that a schedule gives may differ in their last bit
  const double rate = config.learning_rate, decay = config.weight_decay;
  result.python["groups"] = {nlohmann::json::object(),
                             {{"lr", rate / 3}, {"weight_decay", 0.0}},
                             {{"lr", rate * 2}, {"weight_decay", decay / 5}}};
  for (int step = 0; step < kSteps; ++step)
    result.python["factors"].push_back(config.learning_rate_at(step) / config.learning_rate);
  result.run = [config, rate, decay](const NamedTensors& tensors) {
    const std::array<ParameterGroup, kParameters> groups{
        ParameterGroup{}, ParameterGroup{.decays = false, .learning_rate = rate / 3},
        ParameterGroup{.learning_rate = rate * 2, .weight_decay = decay / 5}};
    return values_after<Optimizer>(tensors, config, groups);
  };
  return result;
}

/// The values of every case after the last step.
NamedTensors run_torch(const nlohmann::json& cases, const NamedTensors& tensors) {
  const TemporaryFolder folder;
  write_safetensors(folder / "tensors", tensors, {});
  run_python("../optim/optimizers.py",
             {folder.file("cases", cases.dump()), (folder / "tensors").string(), (folder / "result").string()});
  return read_safetensors(folder / "result", Checksum::optional).tensors;
}

/// Both compute by the same formula, but an element may lie in another lane of a vector register and be rounded
/// differently.
void expect_equal_but_for_rounding(const at::Tensor& ours, const at::Tensor& python, const std::string& what) {
  EXPECT_TRUE(at::allclose(ours, python, /*rtol=*/1e-6, /*atol=*/1e-7)) << what << ": " << (ours - python).abs().max();
}

void expect_the_values_of_python(const std::vector<Case>& cases) {
  nlohmann::json list;
  for (const auto& one : cases) list.push_back(one.python);
  const auto tensors = random_tensors();
  const auto python = run_torch(list, tensors);
  for (const auto& one : cases) {
    const auto values = one.run(tensors);
    for (int i = 0; i < kParameters; ++i) {
      const auto name = key(one.python["name"], i);
      const auto& ours = values[static_cast<std::size_t>(i)];
      if (one.has_equal_bits) {
        EXPECT_TRUE(at::equal(ours, python.at(name))) << name << ": " << (ours - python.at(name)).abs().max();
      } else {
        expect_equal_but_for_rounding(ours, python.at(name), name);
      }
    }
  }
}

TEST(Optimizers, TwentyStepsAreThoseOfTorchOptimFused) {
  expect_the_values_of_python({
      make_case<AdamW>("AdamW", "AdamW", {.learning_rate = 1e-2}),
      make_case<AdamW>("AdamW of other settings", "AdamW",
                       {.learning_rate = 3e-3, .weight_decay = 0.5, .beta1 = 0.8, .beta2 = 0.999, .epsilon = 1e-5}),
      make_case<Adam>("Adam", "Adam", {.learning_rate = 1e-2, .weight_decay = 0.1}),
      make_case<SGD>("SGD", "SGD", {.learning_rate = 1e-2}),
      make_case<SGD>("SGD with dampening alone", "SGD", {.learning_rate = 1e-2, .dampening = 0.3}),
      make_case<SGD>("SGD with momentum", "SGD",
                     {.learning_rate = 1e-2, .weight_decay = 0.1, .momentum = 0.9, .dampening = 0.3}),
      make_case<SGD>("SGD after Nesterov", "SGD",
                     {.learning_rate = 1e-2, .weight_decay = 0.1, .momentum = 0.9, .nesterov = true}),
      make_case<Lion>("Lion", "Lion", {.learning_rate = 1e-2, .weight_decay = 0.5, .beta1 = 0.8, .beta2 = 0.95}),
      make_case<LAMB>("LAMB", "LAMB", {.learning_rate = 1e-2, .weight_decay = 0.1, .beta1 = 0.8, .beta2 = 0.99}),
      make_case<Muon>("Muon", "Muon", {.learning_rate = 1e-2}),
      make_case<Muon>("Muon of other settings", "Muon",
                      {.learning_rate = 3e-3,
                       .weight_decay = 0.5,
                       .momentum = 0.8,
                       .nesterov = false,
                       .iterations = 3,
                       .scale = MuonScale::match_rms_adamw}),
      make_default_case<AdamW>("AdamW"),
      make_case<LAMB>("LAMBNearOne", "LAMB", {.learning_rate = 1e-2, .beta2 = 1 - 1e-8}),
      make_default_case<LAMB>("LAMB"),
      make_default_case<Lion>("Lion"),
      make_default_case<Adam>("Adam"),
      make_default_case<SGD>("SGD"),
  });
}

TEST(Optimizers, StepGroupsAsTorchOptimStepsParamGroupsWithASchedule) {
  expect_the_values_of_python({
      make_case_of_groups<AdamW>("AdamW", "AdamW",
                                 {.learning_rate = 1e-2,
                                  .weight_decay = 0.5,
                                  .schedule = Schedule::cosine,
                                  .warmup_steps = 4,
                                  .decay_steps = 18,
                                  .final_learning_rate = 1e-3}),
      make_case_of_groups<Adam>("Adam", "Adam", {.learning_rate = 1e-2, .weight_decay = 0.1}),
      make_case_of_groups<SGD>("SGD", "SGD",
                               {.learning_rate = 1e-2,
                                .weight_decay = 0.1,
                                .momentum = 0.9,
                                .dampening = 0.3,
                                .schedule = Schedule::linear,
                                .warmup_steps = 3,
                                .decay_steps = 20}),
      make_case_of_groups<Lion>("Lion", "Lion",
                                // A power of two: both languages round the sum of weight and step alike.
                                {.learning_rate = 1.0 / 128, .weight_decay = 0.5, .beta1 = 0.8, .beta2 = 0.95}),
      make_case_of_groups<LAMB>("LAMB", "LAMB", {.learning_rate = 2e-3, .weight_decay = 0.1}),
      make_case_of_groups<Muon>("Muon", "Muon",
                                {.learning_rate = 1e-2,
                                 .weight_decay = 0.5,
                                 .schedule = Schedule::linear,
                                 .warmup_steps = 2,
                                 .decay_steps = 20}),
  });
}

/// What Muon leaves to AdamW follows the schedule of the matrices, with a learning rate of AdamW's size.
TEST(Optimizers, MuonStepsTheGroupsOfItsVectorsAsAdamWDoes) {
  const auto make = [] {
    return Arena{{{"a", at::ones({16}).requires_grad_(), 0, 0}, {"b", at::ones({16}).requires_grad_(), 0, 1}}};
  };
  const std::array groups{ParameterGroup{.weight_decay = 0.3}, ParameterGroup{.learning_rate = 2e-3}};
  const MuonConfig config{.learning_rate = 0.02, .adamw = {.learning_rate = 1e-3, .weight_decay = 0.1}};
  const auto left = make(), right = make();
  Muon muon{config, left, transform_alone, groups};
  AdamW adamw{config.adamw, right.slices(), groups};
  for (const auto* arena : {&left, &right})
    for (const auto& entry : arena->entries()) at::Tensor{entry.gradient}.fill_(0.5);
  muon.step(0.01);  // half of the peak
  adamw.step(0.5e-3);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(left[i].parameter, right[i].parameter)) << i;
  EXPECT_FALSE(at::equal(left[0].parameter, left[1].parameter));
}

TEST(Optimizers, MuonChangesNothingAtALearningRateOfZero) {
  const Arena arena{
      {{"matrix", at::ones({4, 4}).requires_grad_(), 0, 0}, {"vector", at::ones({16}).requires_grad_(), 0, 1}}};
  for (const auto& entry : arena.entries()) at::Tensor{entry.gradient}.fill_(0.5);
  const MuonConfig config{.learning_rate = 0.0};
  Muon muon{config, arena, transform_alone};
  muon.step(config.learning_rate_at(0));
  for (const auto& entry : arena.entries())
    EXPECT_TRUE(at::equal(entry.parameter, at::ones(entry.shape))) << entry.name;
}

/// Python prints the expected number for: torch.tensor(1.0390625, dtype=torch.bfloat16).mul_(0.95).item()
TEST(Optimizers, LAMBIn16BitsDoesNotRoundItsDecayRate) {
  const Arena arena{{{"value", at::ones({16}, at::kBFloat16).requires_grad_(), 0, 0}}};
  LAMB lamb{{.beta2 = 0.95}, arena, [](at::Tensor value) { return value; }};
  const auto& square = lamb.moments()[1].slices[0];
  at::Tensor{square}.fill_(1.0390625);
  lamb.step(1e-3);  // the gradient is zero
  EXPECT_EQ(square[0].item<double>(), 0.98828125);
}

TEST(Optimizers, LAMBOfFloat64DoesNotRoundItsFactorsToFloat32) {
  at::manual_seed(4);
  const auto value = at::randn({7, 13}, at::kDouble), gradient = at::randn({7, 13}, at::kDouble);
  const Arena arena{{{"value", value.clone().requires_grad_(), 0, 0}}};
  const LAMBConfig config{.learning_rate = 0.1, .weight_decay = 0.2, .epsilon = 1e-6};
  LAMB lamb{config, arena, [](at::Tensor sum) { return sum; }};
  at::Tensor{arena[0].gradient}.copy_(gradient);
  lamb.step(config.learning_rate);
  const auto direction =
      gradient / (gradient.abs() + config.epsilon) + config.weight_decay * value;  // of the first step
  const auto expected = value - config.learning_rate * value.norm() / direction.norm() * direction;
  EXPECT_TRUE(at::allclose(arena[0].parameter, expected, /*rtol=*/1e-12, /*atol=*/1e-13))
      << (arena[0].parameter - expected).abs().max();
}

/// A precision that scales the loss skips steps whose gradients are not finite.
template <class Optimizer>
void expect_left_out(const typename Optimizer::Config& config) {
  const auto tensors = random_tensors();
  const auto arena = make_arena(tensors);
  const auto slices = arena.slices();
  Optimizer optimizer{config, slices};
  const auto step = [&](int gradients, float found_inf) {
    set_gradients(arena, tensors, gradients);
    if (found_inf > 0) at::Tensor{arena[0].gradient}.view(-1)[0] = std::nan("");
    optimizer.step(0.01, at::full({}, found_inf));
  };
  const auto state = [&] {
    std::vector<at::Tensor> all;
    for (const auto& slice : slices) all.push_back(slice.values.clone());
    for (const auto& moment : optimizer.moments())
      for (const auto& slice : moment.slices) all.push_back(slice.clone());
    return all;
  };
  step(0, 0);
  const auto before = state();
  step(1, 1);
  const auto after = state();
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i])) << i;
  step(1, 0);
  EXPECT_FALSE(at::equal(before[0], state()[0]));
}
TEST(Optimizers, LeaveOutAStepWithoutATraceInValuesAndMoments) {
  expect_left_out<AdamW>({.weight_decay = 0.1});
  expect_left_out<SGD>({.weight_decay = 0.1, .momentum = 0.9});
  expect_left_out<SGD>({.weight_decay = 0.1, .dampening = 0.3});  // which acts on momentum only
  expect_left_out<Lion>({.weight_decay = 0.1});
}

TEST(Clipping, IsThatOfTorch) {
  const auto tensors = random_tensors();
  for (const double max_norm : {1.0, 1000.0}) {  // one limit below the norm, one above it
    const auto arena = make_arena(tensors);
    set_gradients(arena, tensors, 0);
    const auto slices = arena.slices();
    std::vector<at::Tensor> values;
    for (const auto& entry : arena.entries()) {
      values.push_back(at::zeros_like(entry.parameter));
      values.back().mutable_grad() = entry.gradient.clone();
    }
    const auto norm =
        gradient_norm(parameter_gradients(slices), arena.options(), [](at::Tensor square) { return square; });
    clip_by_norm(slices, norm, max_norm);
    EXPECT_EQ(norm.item<double>(), torch::nn::utils::clip_grad_norm_(values, max_norm));
    for (std::size_t i = 0; i < values.size(); ++i)
      expect_equal_but_for_rounding(arena[i].gradient, values[i].grad(), arena[i].name);
  }
}

/// nanoGPT's get_lr, line by line.
double nanogpt_learning_rate(const AdamWConfig& config, std::int64_t it) {
  const auto warmup_iters = static_cast<double>(config.warmup_steps);
  const auto lr_decay_iters = static_cast<double>(config.decay_steps);
  const auto iteration = static_cast<double>(it);
  if (iteration < warmup_iters) return config.learning_rate * (iteration + 1) / (warmup_iters + 1);
  if (iteration > lr_decay_iters) return config.final_learning_rate;
  const double decay_ratio = (iteration - warmup_iters) / (lr_decay_iters - warmup_iters);
  const double coeff = 0.5 * (1.0 + std::cos(std::numbers::pi * decay_ratio));
  return config.final_learning_rate + coeff * (config.learning_rate - config.final_learning_rate);
}

constexpr AdamWConfig scheduled(Schedule schedule) {
  return {
      .learning_rate = 6e-4, .schedule = schedule, .warmup_steps = 10, .decay_steps = 60, .final_learning_rate = 6e-5};
}

TEST(Schedules, CosineIsNanoGPTsAtEveryStep) {
  const auto config = scheduled(Schedule::cosine);
  for (std::int64_t step = 0; step < 80; ++step)
    EXPECT_DOUBLE_EQ(config.learning_rate_at(step), nanogpt_learning_rate(config, step)) << "step " << step;
}

TEST(Schedules, LinearFallsOnAStraightLineFromWarmUpToDecaySteps) {
  const auto config = scheduled(Schedule::linear);
  EXPECT_DOUBLE_EQ(config.learning_rate_at(9), 6e-4 * 10 / 11);
  EXPECT_DOUBLE_EQ(config.learning_rate_at(10), 6e-4);
  EXPECT_DOUBLE_EQ(config.learning_rate_at(35), (6e-4 + 6e-5) / 2);
  EXPECT_DOUBLE_EQ(config.learning_rate_at(60), 6e-5);
  EXPECT_DOUBLE_EQ(config.learning_rate_at(1000), 6e-5);
}

TEST(Schedules, ConstantKeepsThePeakAfterWarmUp) {
  const auto config = scheduled(Schedule::constant);
  EXPECT_DOUBLE_EQ(config.learning_rate_at(0), 6e-4 / 11);
  for (const std::int64_t step : {10, 60, 1000}) EXPECT_DOUBLE_EQ(config.learning_rate_at(step), 6e-4);
}

TEST(Schedules, TheLongestWarmUpRisesFromAboveZero) {
  auto config = scheduled(Schedule::constant);
  config.warmup_steps = std::numeric_limits<std::int64_t>::max();
  EXPECT_GT(config.learning_rate_at(0), 0.0);
  EXPECT_DOUBLE_EQ(config.learning_rate_at(999), 1000 * config.learning_rate_at(0));
}

TEST(Schedules, AFallThatEndsBeforeItBeginsIsAnError) {
  auto config = scheduled(Schedule::cosine);
  EXPECT_TRUE(config.check().empty());
  config.decay_steps = config.warmup_steps;
  ASSERT_EQ(config.check().size(), 1U);
  EXPECT_EQ(config.check()[0].field, "decay_steps");
}

}  // namespace
}  // namespace ddpxx::optimizer_parity_test
