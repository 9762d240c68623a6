// The fields of a flattened struct are keys of the struct around it.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/config/check_config.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/config/print.hpp>
#include <ddpxx/config/show/help.hpp>
#include <ddpxx/config/show/schema.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx::flatten_test {
namespace {

using namespace detail;

struct Limits {
  std::int64_t steps = 10;
  std::int64_t epochs = 0;
  static constexpr auto describe() {
    return fields(field<&Limits::steps>("Steps at most", at_least(0), resets<&Limits::epochs>()));
  }
};
struct Training {
  std::int64_t batch_size = 8;
  Limits limits;
  std::string device = "cpu";
  static constexpr auto describe() {
    return fields(field<&Training::batch_size>("Samples", at_least(1)), field<&Training::limits>("When it ends"),
                  field<&Training::device>("Where", was("place")));
  }
  std::vector<FieldError> check() const {
    if (batch_size > 100) return {{"batch_size", "is above 100"}};
    return {};
  }
};
struct Program {
  std::string name = "run";
  Training training;
  std::int64_t seed = 1;
  static constexpr auto describe() {
    return fields(field<&Program::name>("A name"), flatten<&Program::training>(),
                  field<&Program::seed>("A seed", at_least(0)));
  }
};
struct Outer {
  Program inner;
  static constexpr auto describe() { return fields(field<&Outer::inner>("The run")); }
};
struct TwiceTheSame {
  Training one;
  Training two;
  static constexpr auto describe() { return fields(flatten<&TwiceTheSame::one>(), flatten<&TwiceTheSame::two>()); }
};

template <class Config = Program>
Config parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "program");
  return parse_config<Config>(static_cast<int>(arguments.size()), arguments.data());
}
std::string refusal(const std::vector<const char*>& arguments) {
  try {
    parse(arguments);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}
bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST(Flatten, GivesFieldsThePathsOfTheStructAround) {
  std::string paths;
  for (const auto& row : table_of<Program>().rows) paths += row.path + ' ';
  EXPECT_EQ(paths, "name batch_size limits.steps limits.epochs device seed ");
  EXPECT_EQ(table_of<Outer>().rows[1].path, "inner.batch_size");
}

TEST(Flatten, ReadsKeysWithoutTheNameOfTheField) {
  const auto run = parse({"batch_size=4", "limits.steps=3", "seed=2"});
  EXPECT_EQ(run.training.batch_size, 4);
  EXPECT_EQ(run.training.limits.steps, 3);
  EXPECT_EQ(run.seed, 2);
  EXPECT_TRUE(contains(refusal({"training.batch_size=4"}), "training.batch_size"));
}

TEST(Flatten, KeepsFormerNamesBelowTheStructAround) {
  EXPECT_TRUE(contains(refusal({"place=cuda"}), "that key moved to device"));
}

TEST(Flatten, KeepsRangesAndTheRulesBetweenFields) {
  EXPECT_TRUE(contains(refusal({"batch_size=0"}), "batch_size")) << refusal({"batch_size=0"});
  EXPECT_TRUE(contains(refusal({"batch_size=101"}), "batch_size")) << refusal({"batch_size=101"});
  EXPECT_TRUE(contains(refusal({"batch_size=101"}), "is above 100"));
  Program run;
  run.training.batch_size = 101;
  const auto errors = config_errors(run, "");
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0].field, "batch_size");
}

TEST(Flatten, KeepsResetsBetweenSiblings) {
  EXPECT_EQ(table_of<Program>().find("limits.steps")->resets, std::vector<std::string>{"limits.epochs"});
}

TEST(Flatten, PrintsWhatReadsBackEqual) {
  Program run;
  run.training.limits.epochs = 7;
  EXPECT_EQ(print_yaml(run),
            "name: \"run\"\nbatch_size: 8\nlimits:\n  steps: 10\n  epochs: 7\ndevice: \"cpu\"\nseed: 1\n");
}

TEST(Flatten, ShowsKeysInHelpAndSchemaOnce) {
  const auto help = help_text(table_of<Program>(), "program", "conf");
  EXPECT_TRUE(contains(help, "\n  batch_size=8 ")) << help;
  EXPECT_FALSE(contains(help, "training")) << help;
  const auto schema = nlohmann::json::parse(json_schema(table_of<Program>(), "run"));
  EXPECT_TRUE(schema["properties"].contains("batch_size"));
  EXPECT_FALSE(schema["properties"].contains("training"));
  EXPECT_EQ(schema["definitions"].size(), 1U) << "only `limits` is a struct of its own in the schema";
  const auto inner = nlohmann::json::parse(json_schema(table_of<Outer>(), "outer"));
  EXPECT_EQ(inner["definitions"]["inner"]["description"], "The run") << inner.dump(2);
}

TEST(Flatten, RefusesTwoFieldsOfOnePath) {
  try {
    table_of<TwiceTheSame>();
    FAIL() << "two fields with one path were accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_TRUE(contains(error.what(), "flatten: two fields have the path `limits`")) << error.what();
  }
}

}  // namespace
}  // namespace ddpxx::flatten_test
