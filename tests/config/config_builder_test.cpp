#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/config/alias.hpp>
#include <ddpxx/config/fill/parsing.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/log.hpp>

#include "filled.hpp"

namespace ddpxx::config_builder_test {
namespace {

using namespace detail;

struct Model {
  std::string model_type = "gpt-nano";
  std::optional<std::int64_t> n_layer;
  std::optional<std::int64_t> n_head;
  std::int64_t n_embd = 48;
  double dropout = 0.1;

  static constexpr auto describe() {
    return fields(field<&Model::model_type>("", choices("gpt-nano", "gpt2"),
                                            resets<&Model::n_layer, &Model::n_head, &Model::n_embd>()),
                  field<&Model::n_embd>("", at_least(1)));
  }
  std::vector<FieldError> check() const {
    if (n_head && n_embd % *n_head != 0)
      return {{"n_embd", "must be a multiple of n_head (" + std::to_string(*n_head) + ')'}};
    return {};
  }
};
struct Optimizer {
  double learning_rate = 3e-4;
  double weight_decay = 0.1;
};
struct Training {
  std::int64_t max_steps = 0;
  std::int64_t seed = 1;
};
struct Config {
  Model model;
  Optimizer optimizer;
  Training training;
  std::string strategy = "ddp";

  static constexpr auto aliases() {
    return std::array{Alias{"gpt_config", "model"}, Alias{"trainer_config", "training"},
                      Alias{"training.learning_rate", "optimizer.learning_rate"}, Alias{"hydra.job.name", "strategy"},
                      Alias{"trainer_config.weight_decay", "optimizer.weight_decay"}};
  }
  static constexpr auto ignored() {
    return std::array{Ignored{"hydra", "the working directory is never changed"},
                      Ignored{"hydra.sweep", "sweeps are asked for by -m"},
                      Ignored{"trainer_config.use_amp", "the precision is chosen by `precision`"}};
  }
  std::vector<FieldError> check() const {
    std::vector<FieldError> errors;
    if (training.max_steps > 100) errors.push_back({"training.max_steps", "is more than we have time for"});
    if (strategy == "none") errors.push_back({"", "there is no strategy"});
    return errors;
  }
};

TEST(Sources, LaterOnesWin) {
  const auto filled = fill<Config>("training: {seed: 2, max_steps: 3}\n", {"training.seed=4"});
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(filled.config.training.seed, 4);
  EXPECT_EQ(filled.config.training.max_steps, 3);
  EXPECT_EQ(filled.config.strategy, "ddp");
}

TEST(Sources, AreToldOfSweeps) {
  EXPECT_EQ(fill<Config>("", {"training.seed=1,2"}).problems,
            "argument 1: \"training.seed=1,2\": \"1,2\" is not a whole number; several values are a sweep: add -m");
}

TEST(Sources, MayLeaveGroupsEmpty) {
  const auto filled = fill<Config>("training:\noptimizer: {}\ngpt_config: ~\nhydra:\n");
  EXPECT_EQ(filled.problems, "");
}

TEST(Resets, TakeBackWhatAnEarlierSourceSaid) {
  const auto filled = fill<Config>("model: {n_layer: 8, n_embd: 64, dropout: 0.2}\n", {"model.model_type=gpt2"});
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(filled.config.model.n_layer, std::nullopt);
  EXPECT_EQ(filled.config.model.n_embd, 48);
  EXPECT_EQ(filled.config.model.dropout, 0.2);
}

TEST(Resets, LeaveTheSameSourceAlone) {
  const auto file = fill<Config>("model: {n_layer: 8, model_type: gpt2, n_embd: 64}\n").config.model;
  EXPECT_EQ(file.n_layer, 8);
  EXPECT_EQ(file.n_embd, 64);
  const auto line = fill<Config>("", {"model.n_layer=8", "model.model_type=gpt2", "model.n_embd=64"}).config.model;
  EXPECT_EQ(line.n_layer, 8);
  EXPECT_EQ(line.n_embd, 64);
}

TEST(Resets, LeaveALaterSourceAlone) {
  EXPECT_EQ(fill<Config>("model: {model_type: gpt2}\n", {"model.n_layer=8"}).config.model.n_layer, 8);
}

TEST(Resets, WorkThroughAliases) {
  EXPECT_EQ(fill<Config>("gpt_config: {n_layer: 8}\n", {"gpt_config.model_type=gpt2"}).config.model.n_layer,
            std::nullopt);
}

TEST(Aliases, LeadToTheFieldTheMostSpecificOneFirst) {
  const auto filled = fill<Config>(
      "gpt_config: {n_layer: 2}\ntraining: {learning_rate: 1, seed: 5}\n"
      "trainer_config: {max_steps: 3, weight_decay: 0.5}\n");
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(filled.config.model.n_layer, 2);
  EXPECT_EQ(filled.config.optimizer.learning_rate, 1);
  EXPECT_EQ(filled.config.optimizer.weight_decay, 0.5);
  EXPECT_EQ(filled.config.training.max_steps, 3);
  EXPECT_EQ(filled.config.training.seed, 5);
}

TEST(Aliases, LeadOnToOtherAliases) {
  EXPECT_EQ(fill<Config>("", {"trainer_config.learning_rate=2"}).config.optimizer.learning_rate, 2);
}

TEST(Aliases, MatchWholeSegmentsOnly) {
  EXPECT_EQ(fill<Config>("", {"gpt_configs.n_layer=2"}).problems,
            "argument 1: \"gpt_configs.n_layer=2\": unknown key; did you mean model.n_layer?");
}

TEST(Aliases, AndTheirFieldAreNotBothGivenInOneSource) {
  EXPECT_EQ(
      fill<Config>("optimizer:\n  learning_rate: 1\ntraining:\n  learning_rate: 1\n").problems,
      "t.yaml:4:3: training.learning_rate: is also given as optimizer.learning_rate at t.yaml:2:3; keep one of the "
      "two\n      learning_rate: 1\n      ^");
  EXPECT_EQ(fill<Config>("", {"training.learning_rate=1", "optimizer.learning_rate=1"}).problems,
            "argument 2: \"optimizer.learning_rate=1\": is also given as training.learning_rate at argument 1: "
            "\"training.learning_rate=1\"; keep one of the two");
}

TEST(Aliases, AndTheirFieldMayBeGivenInTwoSources) {
  const auto filled = fill<Config>("optimizer: {learning_rate: 1}\n", {"training.learning_rate=2"});
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(filled.config.optimizer.learning_rate, 2);
}

TEST(IgnoredKeys, GiveWayToAMoreSpecificAlias) {
  const auto filled = fill<Config>("", {"hydra.job.name=x"});
  EXPECT_EQ(filled.config.strategy, "x");
  EXPECT_EQ(filled.notices, "");
}

TEST(IgnoredKeys, AreNoticedOnceASource) {
  const auto filled = fill<Config>("hydra:\n  run:\n    dir: ./\n  job: {}\ntrainer_config:\n  use_amp: True\n",
                                   {"hydra.run.dir=.", "--hydra.job", "x", "hydra.sweep.dir=x"});
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(filled.notices,
            "t.yaml:1:1: hydra: the working directory is never changed\n"
            "t.yaml:6:3: trainer_config.use_amp: the precision is chosen by `precision`\n"
            "argument 1: \"hydra.run.dir=.\": hydra: the working directory is never changed\n"
            "argument 4: \"hydra.sweep.dir=x\": hydra.sweep: sweeps are asked for by -m\n");
}

struct Unknown {
  std::string yaml;
  std::vector<const char*> arguments;
  std::string report;
};

class UnknownKeys : public testing::TestWithParam<Unknown> {};

TEST_P(UnknownKeys, AreRefusedWithWhatMayHaveBeenMeant) {
  EXPECT_EQ(fill<Config>(GetParam().yaml, GetParam().arguments).problems, GetParam().report);
}

INSTANTIATE_TEST_SUITE_P(
    Keys, UnknownKeys,
    testing::Values(
        Unknown{"optimizer:\n  learnin_rate: 1\n",
                {},
                "t.yaml:2:3: optimizer.learnin_rate: unknown key; did you mean optimizer.learning_rate?\n"
                "      learnin_rate: 1\n      ^"},
        Unknown{"optimzer:\n  learning_rate: 1\n  weight_decay: 1\n",
                {},
                "t.yaml:1:1: optimzer: unknown key; did you mean optimizer?\n    optimzer:\n    ^"},
        Unknown{
            "learning_rate: 1\n",
            {},
            "t.yaml:1:1: learning_rate: unknown key; did you mean optimizer.learning_rate?\n    learning_rate: 1\n  "
            "  ^"},
        Unknown{"optimizer: {strategy: x}\n",
                {},
                "t.yaml:1:13: optimizer.strategy: unknown key; `strategy` lives in the top level\n"
                "    optimizer: {strategy: x}\n                ^"},
        Unknown{"zebra: 1\n",
                {},
                "t.yaml:1:1: zebra: unknown key; the top level has model, optimizer, training or strategy\n"
                "    zebra: 1\n    ^"},
        Unknown{"training: {zebra: 1}\n",
                {},
                "t.yaml:1:12: training.zebra: unknown key; `training` has max_steps or seed\n"
                "    training: {zebra: 1}\n               ^"},
        Unknown{"training: {seed: {x: 1}}\n",
                {},
                "t.yaml:1:19: training.seed.x: unknown key; `training.seed` is a value and has no keys\n"
                "    training: {seed: {x: 1}}\n                      ^"},
        Unknown{"training: 3\n",
                {},
                "t.yaml:1:11: training: is a group, with the keys max_steps or seed\n    training: 3\n              ^"},
        Unknown{"gpt_config: {n_heads: 1}\n",
                {},
                "t.yaml:1:14: gpt_config.n_heads: unknown key; did you mean model.n_head?\n"
                "    gpt_config: {n_heads: 1}\n                 ^"},
        Unknown{"modle: {}\n", {}, "t.yaml:1:1: modle: unknown key; did you mean model?\n    modle: {}\n    ^"},
        Unknown{
            "", {"optimzer.lr=1"}, "argument 1: \"optimzer.lr=1\": unknown key; did you mean optimizer.learning_rate?"},
        Unknown{"",
                {"optimizer.wd=1"},
                "argument 1: \"optimizer.wd=1\": unknown key; did you mean optimizer.weight_decay?"},
        Unknown{"", {"steps=1"}, "argument 1: \"steps=1\": unknown key; did you mean training.max_steps?"},
        Unknown{"",
                {"a..b=1"},
                "argument 1: \"a..b=1\": unknown key; the top level has model, optimizer, training or "
                "strategy"}));

struct Nothing {};
struct WithNothing {
  Nothing nothing;
};

TEST(AGroupWithoutKeys, TakesNoValue) {
  EXPECT_EQ(fill<WithNothing>("", {"nothing=1"}).problems, "argument 1: \"nothing=1\": is a group, without keys");
  EXPECT_EQ(fill<WithNothing>("nothing: {}\n").problems, "");
}

TEST(Problems, AllComeInOneReportInTheOrderOfTheirPlaces) {
  const auto filled = fill<Config>("training:\n  seed: x\nzebra: 1\nmodel:\n  n_embd: 0\n",
                                   {"training.max_steps=200", "optimizer.learning_rate=y"});
  EXPECT_EQ(filled.problems,
            "t.yaml:2:9: training.seed: \"x\" is not a whole number\n      seed: x\n            ^\n"
            "t.yaml:3:1: zebra: unknown key; the top level has model, optimizer, training or strategy\n"
            "    zebra: 1\n    ^\n"
            "t.yaml:5:11: model.n_embd: \"0\" is out of range (allowed: at least 1)\n      n_embd: 0\n              ^\n"
            "argument 2: \"optimizer.learning_rate=y\": \"y\" is not a number");
}

TEST(Problems, PastAHundredAreOnlyCounted) {
  std::string yaml;
  for (int i = 0; i < 250; ++i) yaml += "zebra" + std::to_string(i) + ": 1\n";
  const auto problems = fill<Config>(yaml).problems;
  EXPECT_NE(problems.find("t.yaml:100:1: zebra99"), std::string::npos);
  EXPECT_EQ(problems.find("zebra100:"), std::string::npos);
  EXPECT_TRUE(problems.ends_with("\nand 150 more"));
}

TEST(Notices, PastAHundredAreOnlyCounted) {
  std::vector<std::string> lines;
  set_log_sink([&](const LogLine& line) { lines.emplace_back(line.text); });
  print_notices({250, ConfigProblem{.text = "is set twice"}});
  print_notices({100, ConfigProblem{.text = "is set twice"}});
  set_log_sink({});
  ASSERT_EQ(lines.size(), 201U);
  EXPECT_EQ(lines[99], "is set twice");
  EXPECT_EQ(lines[100], "and 150 more");
}

TEST(RulesBetweenFields, AreReportedWithThePathAndOriginOfTheValue) {
  EXPECT_EQ(fill<Config>("model:\n  n_embd: 50\n", {"model.n_head=4"}).problems,
            "t.yaml:2:11: model.n_embd: must be a multiple of n_head (4)\n      n_embd: 50\n              ^");
  EXPECT_EQ(fill<Config>("", {"gpt_config.n_embd=50", "model.n_head=4"}).problems,
            "argument 1: \"gpt_config.n_embd=50\": must be a multiple of n_head (4)");
  EXPECT_EQ(fill<Config>("", {"model.n_head=5"}).problems, "default: model.n_embd: must be a multiple of n_head (5)");
}

TEST(RulesBetweenFields, HoldAtEveryDepth) {
  EXPECT_EQ(fill<Config>("training: {max_steps: 200}\nmodel: {n_head: 5}\nstrategy: none\n").problems,
            "t.yaml:1:23: training.max_steps: is more than we have time for\n    training: {max_steps: 200}\n"
            "                          ^\n"
            "default: there is no strategy\n"
            "default: model.n_embd: must be a multiple of n_head (5)");
}

TEST(RulesBetweenFields, WaitUntilTheirStructIsComplete) {
  EXPECT_EQ(fill<Config>("", {"model.n_embd=50", "model.n_heed=5", "model.n_head=4"}).problems,
            "argument 2: \"model.n_heed=5\": unknown key; did you mean model.n_head?");
  EXPECT_EQ(fill<Config>("", {"gpt_config.n_embd=x", "model.n_head=5"}).problems,
            "argument 1: \"gpt_config.n_embd=x\": \"x\" is not a whole number (allowed: at least 1)");
  EXPECT_EQ(fill<Config>("model: {n_embd: 50}\nzebra: [\n", {"model.n_head=5"}).problems,
            "t.yaml:2:8: this [ is never closed\n    zebra: [\n           ^");
}

}  // namespace
}  // namespace ddpxx::config_builder_test
