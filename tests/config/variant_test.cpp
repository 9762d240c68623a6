#include <cstdint>
#include <cstdlib>
#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/config/files/yaml.hpp>
#include <ddpxx/config/fill/config_builder.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/config/print.hpp>
#include <ddpxx/config/show/help.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>

#include "filled.hpp"

namespace ddpxx::variant_test {
namespace {

using namespace detail;

struct AdamW {
  double learning_rate = 3e-4;
  double beta1 = 0.9;
  static constexpr auto describe() { return fields(field<&AdamW::learning_rate>("Peak step size", above(0.0))); }
};
struct Nesterov {
  double share = 0.5;
};
struct Plain {};
struct SGD {
  double learning_rate = 0.1;
  std::variant<Plain, Nesterov> momentum;
  static constexpr auto describe() {
    return fields(field<&SGD::learning_rate>("Step size", at_most(1.0)),
                  field<&SGD::momentum>("What is kept of the last step", choices("plain", "nesterov")));
  }
  std::vector<FieldError> check() const {
    if (learning_rate == 1.0) return {{"learning_rate", "is too much for SGD"}};
    return {};
  }
};
struct Config {
  std::variant<AdamW, SGD> optimizer;
  std::int64_t seed = 1;
  static constexpr auto describe() {
    return fields(field<&Config::optimizer>("How the weights are moved", choices("adamw", "sgd"), Resume::must_match));
  }
};

const SGD& sgd(const Config& config) { return std::get<SGD>(config.optimizer); }

TEST(AVariant, IsItsFirstAlternativeByDefault) {
  const auto filled = fill<Config>("optimizer: {learning_rate: 1e-3}\n");
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(std::get<AdamW>(filled.config.optimizer).learning_rate, 1e-3);
}

TEST(AVariant, IsChosenByItsNameInAnyOrder) {
  for (const auto* yaml : {"optimizer: sgd\n", "optimizer: {name: sgd}\n", "optimizer.name: sgd\n"})
    EXPECT_EQ(sgd(fill<Config>(yaml).config).learning_rate, 0.1) << yaml;
  const auto filled = fill<Config>("optimizer:\n  learning_rate: 0.2\n  name: sgd\n");
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(sgd(filled.config).learning_rate, 0.2);
  EXPECT_EQ(sgd(fill<Config>("", {"optimizer.learning_rate=0.2", "optimizer=sgd"}).config).learning_rate, 0.2);
}

TEST(AVariant, MayHoldAnother) {
  const auto filled =
      fill<Config>("optimizer: sgd\n", {"optimizer.momentum=nesterov", "optimizer.momentum.share=0.25"});
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(std::get<Nesterov>(sgd(filled.config).momentum).share, 0.25);
}

TEST(AVariant, KeepsWhatItsAlternativesShareAndSaysSo) {
  const auto filled =
      fill<Config>("optimizer:\n  name: adamw\n  learning_rate: 0.2\n  beta1: 0.8\n", {"optimizer=sgd"});
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(sgd(filled.config).learning_rate, 0.2);
  EXPECT_EQ(filled.notices,
            "t.yaml:3:3: optimizer.learning_rate: is kept for optimizer=\"sgd\", which was chosen later\n"
            "t.yaml:4:3: optimizer.beta1: is left out: optimizer=\"sgd\", which was chosen later, has no such key\n");
}

TEST(AVariant, RefusesKeysOfAnotherAlternative) {
  EXPECT_EQ(fill<Config>("", {"optimizer=sgd", "optimizer.beta1=0.5"}).problems,
            "argument 2: \"optimizer.beta1=0.5\": is not a key of optimizer=\"sgd\"; it belongs to adamw");
  EXPECT_EQ(fill<Config>("optimizer: sdg\n").problems,
            "t.yaml:1:12: optimizer: \"sdg\" is not known (allowed: adamw or sgd); did you mean sgd?\n"
            "    optimizer: sdg\n               ^");
}

TEST(AVariant, IsNamedOnceByTheErrorAboutAKeyThatItsAlternativesShare) {
  EXPECT_EQ(fill<Config>("", {"zebra.learning_rate=1"}).problems,
            "argument 1: \"zebra.learning_rate=1\": unknown key; `learning_rate` lives in `optimizer`");
}

TEST(AVariant, RefusesKeysThatLieDeeperInAnotherAlternative) {
  EXPECT_EQ(fill<Config>("", {"optimizer.momentum.share=0.25"}).problems,
            "argument 1: \"optimizer.momentum.share=0.25\": is not a key of optimizer=\"adamw\"; it belongs to sgd");
  EXPECT_EQ(fill<Config>("", {"optimizer=adamw", "optimizer.momentum=nesterov"}).problems,
            "argument 2: \"optimizer.momentum=nesterov\": is not a key of optimizer=\"adamw\"; it belongs to sgd");
  EXPECT_EQ(fill<Config>("", {"optimizer=sgd", "optimizer.momentum.share=1"}).problems,
            "argument 2: \"optimizer.momentum.share=1\": is not a key of optimizer.momentum=\"plain\"; it belongs to "
            "nesterov");
  const auto filled =
      fill<Config>("optimizer: {name: sgd, momentum: {name: nesterov, share: 0.1}}\n", {"optimizer=adamw"});
  EXPECT_EQ(filled.problems, "");
  EXPECT_NE(filled.notices.find("optimizer.momentum.name: is left out: optimizer=\"adamw\""), std::string::npos);
}

TEST(AVariant, IsGivenByOneSpellingOnly) {
  EXPECT_EQ(
      fill<Config>("", {"optimizer.name=adamw", "optimizer=sgd"}).problems,
      "argument 2: \"optimizer=sgd\": is also given as optimizer.name at argument 1: \"optimizer.name=adamw\"; keep "
      "one of the two");
}

TEST(AVariant, HasTheDefaultsOfTheConfigThatHoldsIt) {
  struct Slow {
    std::variant<AdamW, SGD> optimizer = SGD{.learning_rate = 0.5, .momentum = {}};
    static constexpr auto describe() { return fields(field<&Slow::optimizer>("", choices("adamw", "sgd"))); }
  };
  const auto& table = table_of<Slow>();
  EXPECT_EQ(table.print_default(*table.find_active("optimizer.learning_rate", table.defaults)), "0.5");
}

struct Tuned {
  std::variant<AdamW, SGD> optimizer = SGD{.learning_rate = 0.5, .momentum = Nesterov{.share = 0.75}};
  std::int64_t seed = 1;
  static constexpr auto describe() { return fields(field<&Tuned::optimizer>("", choices("adamw", "sgd"))); }
};

TEST(AVariant, HasTheDefaultsOfTheConfigAfterAnotherOneWasChosenInBetween) {
  const auto filled = fill<Tuned>("optimizer: adamw\n", {"optimizer=sgd", "optimizer.momentum=plain"});
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(std::get<SGD>(filled.config.optimizer).learning_rate, 0.5);
  const auto nested = fill<Tuned>("optimizer: {name: sgd, momentum: plain}\n", {"optimizer.momentum=nesterov"});
  EXPECT_EQ(nested.problems, "");
  EXPECT_EQ(std::get<Nesterov>(std::get<SGD>(nested.config.optimizer).momentum).share, 0.75);
  // Values that a config has before it is filled are defaults, too.
  Tuned own{.optimizer = SGD{.learning_rate = 0.25, .momentum = {}}};
  ConfigBuilder builder{table_of<Tuned>(), &own};
  builder.apply(read_yaml_text("optimizer: adamw\n", "t.yaml", 0));
  builder.apply(read_yaml_text("optimizer: sgd\n", "u.yaml", 1));
  builder.finish();
  EXPECT_EQ(problem_report(builder.problems()), "");
  EXPECT_EQ(std::get<SGD>(own.optimizer).learning_rate, 0.25);
  const auto& name = *table_of<Tuned>().find("optimizer.name");
  ASSERT_EQ(builder.history(name).size(), 2U);
  EXPECT_EQ(builder.history(name)[0].value, "\"adamw\"");
  EXPECT_EQ(fill<Tuned>("optimizer: sdg\n", {"optimizer=sgd"}).problems,
            "t.yaml:1:12: optimizer: \"sdg\" is not known (allowed: adamw or sgd); did you mean sgd?\n"
            "    optimizer: sdg\n               ^")
      << "a wrong choice must be refused although a later one replaces it";
  const auto refused = fill<Tuned>("optimizer: {name: adamw, beta1: 0.9}\n", {"optimizer=sdg", "optimizer.beta1=0.8"});
  EXPECT_THAT(refused.problems, testing::HasSubstr("\"sdg\" is not known"));
  EXPECT_THAT(refused.problems, testing::Not(testing::HasSubstr("is not a key")))
      << "the choice before it has these keys";
}

TEST(AVariant, DoesNotReadAReferenceThatALaterChoiceReplaces) {
  ASSERT_EQ(::unsetenv("DDPXX_TEST_NONE"), 0);
  const auto filled = fill<Config>("optimizer: {name: '${oc.env:DDPXX_TEST_NONE}', learning_rate: 0.2, beta1: 0.8}\n",
                                   {"optimizer=sgd"});
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(sgd(filled.config).learning_rate, 0.2);
  EXPECT_NE(filled.notices.find("optimizer.beta1: is left out: optimizer=\"sgd\""), std::string::npos);
  const auto back =
      fill<Config>("optimizer: {name: '${oc.env:DDPXX_TEST_NONE}', momentum: plain}\n", {"optimizer=adamw"});
  EXPECT_EQ(back.problems, "") << "the keys of the replaced choice are left out, whichever it was";
  EXPECT_NE(fill<Config>("optimizer: '${oc.env:DDPXX_TEST_NONE}'\n").problems.find("this variable is not set"),
            std::string::npos);
}

TEST(AVariant, IsCheckedAsTheAlternativeThatItIs) {
  EXPECT_EQ(fill<Config>("", {"optimizer=sgd", "optimizer.learning_rate=1"}).problems,
            "argument 2: \"optimizer.learning_rate=1\": is too much for SGD");
  EXPECT_EQ(fill<Config>("", {"optimizer.learning_rate=1"}).problems, "");
  EXPECT_EQ(fill<Config>("", {"optimizer=sgd", "optimizer.learning_rate=2"}).problems,
            "argument 2: \"optimizer.learning_rate=2\": \"2\" is out of range (allowed: at most 1)");
}

TEST(AVariant, TakesOfRecordedSettingsOnlyThoseOfItsAlternative) {
  const auto recorded = [](const GivenConfig<Config>&) {
    return RecordedSettings{{{"optimizer.name", "\"sgd\""},
                             {"optimizer.learning_rate", "0.2"},
                             {"optimizer.beta1", "0.8"}},  // of a version that had it for all optimizers
                            "a snapshot"};
  };
  const char* arguments[] = {"program"};
  EXPECT_EQ(sgd(parse_config<Config>(1, arguments, {}, recorded)).learning_rate, 0.2);
}

TEST(AVariant, TakesNoRecordedDefaultsForAnotherAlternative) {
  const auto recorded = [](const GivenConfig<Config>&) {
    return RecordedSettings{
        {{"optimizer.name", "\"adamw\""}, {"optimizer.learning_rate", "0.0003"}, {"optimizer.beta1", "0.8"}},
        "a snapshot"};
  };
  const char* arguments[] = {"program", "optimizer=sgd"};
  EXPECT_EQ(sgd(parse_config<Config>(2, arguments, {}, recorded)).learning_rate, 0.1);
  const auto kept = std::get<AdamW>(parse_config<Config>(1, arguments, {}, recorded).optimizer);
  EXPECT_EQ(kept.learning_rate, 3e-4);
  EXPECT_EQ(kept.beta1, 0.8);
}

TEST(AVariant, IsPrintedWithItsNameAndReadsBack) {
  const auto filled = fill<Config>("", {"optimizer=sgd", "optimizer.momentum=nesterov"});
  const auto yaml = print_yaml(filled.config);
  EXPECT_EQ(yaml,
            "optimizer:\n  name: \"sgd\"\n  learning_rate: 0.1\n  momentum:\n    name: \"nesterov\"\n    share: 0.5\n"
            "seed: 1\n");
  EXPECT_EQ(print_yaml(fill<Config>(yaml).config), yaml);
  const auto settings = settings_of(filled.config);
  EXPECT_EQ(settings[0].path, "optimizer.name");
  EXPECT_EQ(settings[1].resume, Resume::must_match);
}

TEST(AVariant, HasHelpOnEachAlternative) {
  EXPECT_EQ(help_text(table_of<Config>(), "optimizer").substr(0, 42), "optimizer: How the weights are moved\n  opt");
  EXPECT_NE(help_text(table_of<Config>(), "optimizer").find("\noptimizer=sgd\n  optimizer.learning_rate=0.1 "),
            std::string::npos);
}

TEST(AVariant, NeedsANameForEachAlternative) {
  struct Nameless {
    std::variant<AdamW, SGD> optimizer;
  };
  try {
    table_of<Nameless>();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "describe(): the variant `optimizer` needs choices(...), one name for each of its 2 structs");
  }
}

struct Labelled {
  std::string name;
};

TEST(AVariant, HasNoAlternativeWithAFieldCalledName) {
  struct Ambiguous {
    std::variant<Plain, Labelled> kind;
    static constexpr auto describe() { return fields(field<&Ambiguous::kind>("", choices("plain", "named"))); }
  };
  EXPECT_THROW(table_of<Ambiguous>(), Error);
}

}  // namespace
}  // namespace ddpxx::variant_test
