// Learning rates and weight decays for parameters that are chosen by their names: which group each parameter gets, what
// is refused, and what snapshots say.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/train/decay_rule.hpp>
#include <ddpxx/train/parameter_groups.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../temporary_folder.hpp"
#include "ones_and_line.hpp"

namespace ddpxx::parameter_groups_test {
namespace {

using testing::HasSubstr;
using Plain = Trainer<Line, Ones, AdamW, Float32, SingleDevice>;

struct Part : torch::nn::Module {
  explicit Part(at::Tensor shared)
      : weight{register_parameter("weight", std::move(shared))}, bias{register_parameter("bias", at::zeros({2}))} {}
  at::Tensor weight, bias;
};
/// Three parts: the weight of the middle one is frozen, and the last one has the weight of the first.
struct Tied : torch::nn::Module {
  std::shared_ptr<Part> body = register_module("body", std::make_shared<Part>(at::ones({2, 2})));
  std::shared_ptr<Part> middle = register_module("middle", std::make_shared<Part>(at::ones({2, 2})));
  std::shared_ptr<Part> head = register_module("head", std::make_shared<Part>(body->weight));
  Tied() { middle->weight.set_requires_grad(false); }
};

ParameterGroup group_of(const ParameterGroups& groups, const Tied& model, const std::string& name) {
  const auto number = groups.group_of(name, model.named_parameters()[name]);
  return groups.table.at(static_cast<std::size_t>(number));
}

TEST(ParameterGroups, AreThoseOfTheDecayRuleWithoutSettings) {
  const Tied model;
  const auto groups = parameter_groups(model, decay_rule(model), {});
  EXPECT_EQ(groups.table, (std::vector<ParameterGroup>{kDecayGroups.begin(), kDecayGroups.end()}));
  EXPECT_EQ(groups.group_of("body.weight", model.body->weight), static_cast<int>(DecayGroup::decay));
  EXPECT_EQ(groups.group_of("body.bias", model.body->bias), static_cast<int>(DecayGroup::no_decay));
}

TEST(ParameterGroups, HaveTheValuesOfTheFirstPatternThatMatches) {
  const Tied model;
  const auto groups = parameter_groups(
      model, decay_rule(model),
      {.learning_rate = {{"body.*", 0.1}, {"*.bia?", 0.2}}, .weight_decay = {{"*.weight", 0.5}, {"head.*", 0}}});
  EXPECT_EQ(group_of(groups, model, "body.weight"), (ParameterGroup{true, 0.1, 0.5}));
  EXPECT_EQ(group_of(groups, model, "body.bias"), (ParameterGroup{false, 0.2, {}})) << "\"*\" sorts before \"b\"";
  EXPECT_EQ(group_of(groups, model, "head.bias"), (ParameterGroup{false, 0.2, 0.0}));
  EXPECT_EQ(group_of(groups, model, "middle.weight"), kDecayGroups[0]) << "it is frozen";
  EXPECT_EQ(group_of(groups, model, "middle.bias"), (ParameterGroup{false, 0.2, {}}));
  EXPECT_EQ(groups.table.size(), 5U) << "two biases share a group";
}

std::string refusal(const ParameterGroupsConfig& config) {
  const Tied model;
  try {
    parameter_groups(model, decay_rule(model), config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    return error.what();
  }
  return "none";
}

TEST(ParameterGroups, RefuseAPatternThatMatchesNothingTrainable) {
  EXPECT_EQ(refusal({.learning_rate = {{"boddy.*", 0.1}}}),
            "parameter_groups.learning_rate: \"boddy.*\" matches no trainable parameter (nearest: body.weight, "
            "body.bias, middle.bias)");
  EXPECT_THAT(refusal({.weight_decay = {{"middle.weight", 0.1}}}),
              HasSubstr("parameter_groups.weight_decay: \"middle.weight\" matches no trainable parameter"));
  EXPECT_THAT(refusal({.weight_decay = {{"head.weight", 0.1}}}),
              HasSubstr("\"head.weight\" matches no trainable parameter (nearest: "))
      << "the first name of the weight is body.weight";
}

TEST(ParameterGroups, RefuseAPatternThatNeverIsTheFirstToMatch) {
  EXPECT_EQ(
      refusal({.weight_decay = {{"*", 0.1}, {"*.bias", 0}}}),
      "parameter_groups.weight_decay: \"*.bias\" has no effect: patterns that sort before it, such as \"*\", match "
      "all of its parameters, and the first one counts");
  EXPECT_EQ(refusal({.weight_decay = {{"*.bias", 0}, {"*y.*", 0.1}, {"body.*", 0.1}, {"middle.*", 0}}}),
            "parameter_groups.weight_decay: \"body.*\" has no effect: patterns that sort before it, such as \"*y.*\", "
            "match all of its parameters, and the first one counts");
}

struct Program {
  Plain::Config train = {};
  static constexpr auto describe() { return fields(flatten<&Program::train>()); }
};
ParameterGroupsConfig parse(std::vector<const char*> words) {
  words.insert(words.begin(), "program");
  return parse_config<Program>(static_cast<int>(words.size()), words.data()).train.parameter_groups;
}

TEST(ParameterGroups, AreGivenByArguments) {
  const ParameterGroupsConfig wanted{.learning_rate = {{"line.*", 1e-4}},
                                     .weight_decay = {{"*.bias", 0.0}, {"line.weight", 0.2}}};
  EXPECT_EQ(parse({"parameter_groups.learning_rate={\"line.*\": 1e-4}",
                   "parameter_groups.weight_decay={\"*.bias\": 0, line.weight: 0.2}"}),
            wanted);
  EXPECT_EQ(parse({"+parameter_groups.learning_rate.line.*=1e-4", "+parameter_groups.weight_decay.*.bias=0",
                   "+parameter_groups.weight_decay.line.weight=0.2"}),
            wanted);
}

std::string refusal_of_trainer(const auto& check) {
  try {
    check();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    return error.what();
  }
  return "none";
}

/// An optimizer that does not take groups.
struct OneRate : SGD {
  OneRate(const Config& config, std::span<const Slice> slices) : SGD{config, slices} {}
};

TEST(ParameterGroups, AreCheckedBeforeATrainingBegins) {
  Plain::Config config;
  config.parameter_groups.learning_rate = {{"*", -1.0}};
  EXPECT_THAT(refusal_of_trainer([&] { Plain::check(config); }), HasSubstr("parameter_groups.learning_rate"));

  using Other = Trainer<Line, Ones, OneRate, Float32, SingleDevice>;
  Other::Config other;
  Other::check(other);
  other.parameter_groups.weight_decay = {{"*", 0.1}};
  EXPECT_THAT(refusal_of_trainer([&] { Other::check(other); }),
              testing::AllOf(HasSubstr("parameter_groups: "), HasSubstr("OneRate steps all parameters with one"),
                             HasSubstr("add a last parameter `std::span<const ddpxx::ParameterGroup>`")));
}

Plain::Config config_of(const TemporaryFolder& folder, std::int64_t steps, const ParameterGroupsConfig& groups) {
  Plain::Config config{.batch_size = 2};
  config.training.max_steps = steps;
  config.training.max_epochs = 0;
  config.training.save_dir = (folder / "run").string();
  config.parameter_groups = groups;
  return config;
}
std::string messages_of_training(const Plain::Config& config) {
  Group alone;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Plain{alone, std::make_shared<Line>(), std::make_shared<Ones>(), config}.fit();
  testing::internal::GetCapturedStdout();
  return testing::internal::GetCapturedStderr();
}

TEST(ParameterGroups, AreInTheSnapshotAndWarnedOfWhereARunGoesOnWithOthers) {
  const TemporaryFolder folder;
  messages_of_training(config_of(folder, 1, {.weight_decay = {{"*.bias", 0.2}, {"line.weight", 0}}}));
  const auto run = load_snapshot(folder / "run")->run;
  std::vector<std::pair<std::string, bool>> decays;
  for (const auto& parameter : run.parameters) decays.emplace_back(parameter.name, parameter.decays);
  EXPECT_EQ(decays, (std::vector<std::pair<std::string, bool>>{{"line.weight", false}, {"line.bias", true}}));

  EXPECT_THAT(messages_of_training(config_of(folder, 2, {.weight_decay = {{"*.bias", 0.2}, {"line.weight", 0}}})),
              testing::Not(HasSubstr("changed setting")));
  EXPECT_THAT(messages_of_training(config_of(folder, 3, {.weight_decay = {{"*.bias", 0.5}}})),
              HasSubstr("resumed with a changed setting: parameter_groups.weight_decay "
                        "{\"*.bias\": 0.2, \"line.weight\": 0.0} -> {\"*.bias\": 0.5}"));
}

}  // namespace
}  // namespace ddpxx::parameter_groups_test
