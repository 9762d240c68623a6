#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/config/alias.hpp>
#include <ddpxx/config/files/python_file.hpp>
#include <ddpxx/config/files/yaml.hpp>
#include <ddpxx/config/fill/blame.hpp>
#include <ddpxx/config/fill/config_builder.hpp>
#include <ddpxx/config/line/arguments.hpp>
#include <ddpxx/config/line/environment_source.hpp>
#include <ddpxx/config/print.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>

#include "filled.hpp"

namespace ddpxx::blame_test {

struct Foreign {  // stands for a struct of another library, described from outside
  std::int64_t port = 29500;
};
}  // namespace ddpxx::blame_test

template <>
inline constexpr auto ddpxx::kFieldsOf<ddpxx::blame_test::Foreign> =
    ddpxx::fields(ddpxx::field<&ddpxx::blame_test::Foreign::port>("Where it listens", ddpxx::between(1, 65535)));

namespace ddpxx::blame_test {
namespace {

using namespace detail;

struct Optimizer {
  double learning_rate = 3e-4;
  double weight_decay = 0.1;
  static constexpr auto describe() {
    return fields(field<&Optimizer::learning_rate>("", was("lr"), above(0.0)),
                  field<&Optimizer::weight_decay>("", was("training.decay")));
  }
};
struct Config {
  Optimizer optimizer;
  std::string token;
  Foreign server;
  static constexpr auto describe() {
    return fields(field<&Config::token>("Key of the tracker", secret(), choices("", "good")),
                  field<&Config::server>("", was("endpoint")));
  }
};

TEST(Blame, TellsWhoSetWhatAndWhatThatOverrode) {
  Config config;
  ConfigBuilder builder{table_of<Config>(), &config};
  builder.apply(read_yaml_text("optimizer: {learning_rate: 1e-3}\ntoken: good\n", "t.yaml", 0));
  const std::array arguments{"optimizer.learning_rate=0.5"};
  builder.apply(read_arguments(arguments, table_of<Config>()).entries);
  builder.finish();
  EXPECT_EQ(
      blame_yaml(table_of<Config>(), &config, builder),
      "optimizer:\n"
      "  learning_rate: 0.5                            # argument 1; overrides t.yaml:1:28 (0.001); default 0.0003\n"
      "  weight_decay: 0.1                             # default\n"
      "server:\n"
      "  port: 29500                                   # default\n");
}

TEST(ASecret, IsTakenAndNowhereTold) {
  const auto filled = fill<Config>("", {"token=good"});
  EXPECT_EQ(filled.config.token, "good");
  EXPECT_EQ(print_yaml(filled.config).find("token"), std::string::npos);
  EXPECT_EQ(settings_of(filled.config)[2].path, "token");
  EXPECT_EQ(settings_of(filled.config)[2].value, "\"***\"");
  EXPECT_EQ(fill<Config>("", {"token=leaked"}).problems,
            "argument 1: \"token=***\": the value of this secret is not taken");
  EXPECT_EQ(fill<Config>("token: leaked=\n").problems,
            "t.yaml:1:8: token: the value of this secret is not taken\n    ***\n       ^");
  EXPECT_EQ(fill<Config>("", {"--token", "leaked="}).problems,
            "argument 1: \"--token ***\": the value of this secret is not taken");
  EXPECT_EQ(
      fill<Config>("", {"token='pw${x'"}).problems,
      "argument 1: \"token=***\": a reference in this secret cannot be replaced; write \\${ where ${ is a part of "
      "the text");
}

struct Doors {
  std::string token;
  std::vector<std::string> tokens;
  std::string first, second;
  std::int64_t count = 1;
  std::map<std::string, std::string> keys;
  static constexpr auto describe() {
    return fields(field<&Doors::token>("", secret(), was("old_token")), field<&Doors::tokens>("", secret()),
                  field<&Doors::first>("", secret()), field<&Doors::keys>("", secret()));
  }
  static constexpr auto aliases() { return std::array{Alias{"creds[0]", "first"}, Alias{"creds[1]", "second"}}; }
};

std::string python_problems(std::string_view text) {
  Doors config;
  ConfigBuilder builder{table_of<Doors>(), &config};
  builder.apply(read_python(text, std::make_shared<ConfigSource>(ConfigSource{.name = "t.py"})));
  builder.finish();
  return problem_report(builder.problems());
}

TEST(ASecret, IsInNoProblem) {
  EXPECT_EQ(python_problems("token = abc\n"),
            "t.py:1:9: token: the value of this secret is not taken\n    ***\n       ^");
  EXPECT_EQ(python_problems("count = abc\n").find("t.py:1:9: count: \"abc\" is not a number"), 0U);
  const auto problem = [](const char* argument) { return fill<Doors>("", {argument}).problems; };
  EXPECT_EQ(problem("tokens=[abc"), "argument 1: \"tokens=***\": this [ is never closed");
  EXPECT_EQ(problem("+token=abc"),
            "argument 1: \"+token=***\": settings cannot be added; write key=value without the +");
  EXPECT_EQ(problem("token=ab\xFF"), "argument 1: \"token=***\": is not UTF-8");
  const auto unclear = "a reference in this secret cannot be replaced; write \\${ where ${ is a part of the text";
  for (const char* value : {"pw${hunter2}x", "${hunter2", "${a${b}}", "${}", "${hunter:2}", "${..hunter}", "x${creds}"})
    EXPECT_EQ(problem(("token=" + std::string{value}).c_str()), "argument 1: \"token=***\": " + std::string{unclear});
  EXPECT_NE(problem("token=${oc.env:DDPXX_TEST_NONE}").find("this variable is not set"), std::string::npos);
  EXPECT_EQ(problem("creds=abc"), "argument 1: \"creds=***\": the value of this secret is not taken");
  EXPECT_EQ(problem("creds=[abc]"), "argument 1: \"creds=***\": needs 2 items, and has 1");
  EXPECT_EQ(problem("creds=[abc,[d]]"), "argument 1: \"creds=***\": is a list where a text is expected");
  EXPECT_EQ(problem("token.a=abc"), "argument 1: \"token.a=***\": unknown key; `token` is a value and has no keys");
  EXPECT_EQ(problem("old_token=abc"), "argument 1: \"old_token=***\": that key moved to token");
  EXPECT_EQ(problem("keys={a: abc"), "argument 1: \"keys=***\": this { is never closed");
  EXPECT_EQ(fill<Doors>("{token: abc, count: x}\n").problems,
            "t.yaml:1:21: count: \"x\" is not a whole number\n    ***\n       ^")
      << "a line that also holds a secret must not be shown";
  const std::array variables{"T_TOKENS=[abc"};
  EXPECT_EQ(problem_report(read_environment("T_", variables, table_of<Doors>()).problems),
            "environment variable T_TOKENS: \"[abc\": this [ is never closed");
  Doors config;
  ConfigBuilder builder{table_of<Doors>(), &config};
  builder.apply(read_environment("T_", variables, table_of<Doors>()));
  EXPECT_EQ(problem_report(builder.problems()), "environment variable T_TOKENS: \"***\": this [ is never closed");
}

TEST(ASecret, WithoutItsEqualsSignIsInNoProblem) {
  const auto problem = [](const char* key, const char* value) { return fill<Doors>("", {key, value}).problems; };
  EXPECT_EQ(problem("token", "abc"), "argument 1: \"token ***\": write token=***");
  EXPECT_EQ(problem("-token", "abc"), "argument 1: \"-token ***\": write token=***");
  EXPECT_EQ(problem("token", "abc=="), "argument 1: \"token ***\": write token=***");
  EXPECT_EQ(problem("tokn", "abc"), "argument 1: \"tokn ***\": write tokn=***");
  EXPECT_EQ(problem("--tokn", "abc=="), "argument 1: \"--tokn ***\": unknown key; did you mean token?");
  EXPECT_EQ(problem("--tokn", "count=2"), "argument 1: \"***\": tokn: unknown key; did you mean token?");
  EXPECT_EQ(problem("token", "count=2"),
            "argument 1: \"***\": is not a setting; settings are written key=value, --help lists them");
}

TEST(ASecret, ThatBeginsWithADashIsInNoProblem) {
  const auto problem = [](const std::vector<const char*>& arguments) { return fill<Doors>("", arguments).problems; };
  for (const char* value : {"-abc", "--abc", "-abc=", "--abc=", "-ab\xFF"}) {
    EXPECT_EQ(problem({"token", value}), "argument 1: \"token ***\": write token=***");
    EXPECT_EQ(problem({"-token", value}), "argument 1: \"-token ***\": write token=***");
    EXPECT_EQ(problem({"--token", value}), "argument 1: \"--token ***\": needs a value: write token=***");
    EXPECT_EQ(problem({"--tokn", value}), "argument 1: \"--tokn ***\": unknown key; did you mean token?");
    EXPECT_EQ(problem({"tokn", value}), "argument 1: \"tokn ***\": write tokn=***");
  }
  EXPECT_EQ(problem({"token", "--count=x"}),
            "argument 1: \"***\": write token=***\nargument 2: \"--count=x\": \"x\" is not a whole number");
  EXPECT_EQ(problem({"--token", "--count", "x"}),
            "argument 1: \"***\": needs a value: write token=***\n"
            "argument 2: \"--count x\": \"x\" is not a whole number");
  EXPECT_EQ(problem({"token", "-abc", "-x"}),
            "argument 1: \"token ***\": write token=***\n"
            "argument 3: \"-x\": is not an option; settings are written key=value, --help lists them");
}

struct Hub {
  std::string token;
  std::string pass_phrase;
  static constexpr auto describe() {
    return fields(field<&Hub::token>("", secret()), field<&Hub::pass_phrase>("", secret()));
  }
};
struct WithHub {
  Hub hub;
  std::int64_t count = 1;
  static constexpr auto ignored() {
    return std::array{Ignored{"tracker", "nothing is tracked"}, Ignored{"cluster", "is not chosen here"}};
  }
};

TEST(ASecret, UnderAMisspeltOrMisplacedKeyIsInNoProblem) {
  const auto problem = [](const char* argument) { return fill<WithHub>("", {argument}).problems; };
  EXPECT_EQ(problem("token=s3cr3t"), "argument 1: \"token=***\": unknown key; did you mean hub.token?");
  EXPECT_EQ(problem("hub.tokn=s3cr3t"), "argument 1: \"hub.tokn=***\": unknown key; did you mean hub.token?");
  for (const char* argument : {"hub_token=s3cr3t", "hub.passphrase=s3cr3t", "phrase=s3cr3t", "--hub.tokn=s3cr3t",
                               "db.password=s3cr3t", "token.value=s3cr3t", "+tokn=s3cr3t"})
    EXPECT_EQ(problem(argument).find("s3cr3t"), std::string::npos) << problem(argument);
  for (const char* key : {"hub.tokn", "token", "--hub.tokn"}) {
    const auto apart = fill<WithHub>("", {key, "=", "s3cr3t"}).problems;
    EXPECT_EQ(apart.find("s3cr3t"), std::string::npos) << apart;
  }
  for (const char* yaml :
       {"token: s3cr3t\n", "hub: {tokn: s3cr3t}\n", "hub:\n  tokn:\n    - s3cr3t\n", "hbu: {token: s3cr3t}\n"})
    EXPECT_EQ(fill<WithHub>(yaml).problems.find("s3cr3t"), std::string::npos) << fill<WithHub>(yaml).problems;
  WithHub config;
  ConfigBuilder builder{table_of<WithHub>(), &config};
  const std::array variables{"T_TOKEN=s3cr3t", "T_HUB__TOKN=s3cr3t"};
  builder.apply(read_environment("T_", variables, table_of<WithHub>()));
  EXPECT_EQ(problem_report(builder.problems()),
            "environment variable T_HUB__TOKN: \"***\": unknown key; did you mean hub.token?\n"
            "environment variable T_TOKEN: \"***\": unknown key; did you mean hub.token?");
  EXPECT_EQ(fill<WithHub>("", {"tracker.api_key=s3cr3t"}).notices.find("s3cr3t"), std::string::npos);
  EXPECT_EQ(fill<WithHub>("", {"--tracker.api_key", "-s3cr3t"}).problems,
            "argument 1: \"--tracker.api_key ***\": write tracker.api_key=***");
  EXPECT_EQ(problem("coutn=7"), "argument 1: \"coutn=7\": unknown key; did you mean count?");
  EXPECT_NE(fill<WithHub>("", {"cluster=near"}).notices.find("near"), std::string::npos);
  EXPECT_EQ(fill<Config>("", {"api_token=s3cr3t"}).problems.find("s3cr3t"), std::string::npos)
      << "a program without secrets must not show one either";
}

TEST(ASecret, IsInNoProblemOfAFileThatCannotBeRead) {
  for (const char* text :
       {"token: @hf_abc\n", "token: ab: hf_abc\n", "count: 1\ntoken:\n  @hf_abc\n", "{\"token\": hf_abc"})
    EXPECT_EQ(fill<Doors>(text).problems.find("hf_abc"), std::string::npos) << fill<Doors>(text).problems;
  EXPECT_NE(fill<Doors>("count: @hf_abc\n").problems.find("count: @hf_abc"), std::string::npos);
}

TEST(AFormerName, IsRefusedWithThePresentOne) {
  EXPECT_EQ(fill<Config>("", {"optimizer.lr=1"}).problems,
            "argument 1: \"optimizer.lr=1\": that key moved to optimizer.learning_rate");
  EXPECT_EQ(fill<Config>("", {"training.decay=1"}).problems,
            "argument 1: \"training.decay=1\": that key moved to optimizer.weight_decay");
  EXPECT_EQ(fill<Config>("endpoint:\n  port: 1\n").problems,
            "t.yaml:1:1: endpoint: that key moved to server.port\n    endpoint:\n    ^");
}

TEST(AForeignStruct, IsDescribedFromOutside) {
  EXPECT_EQ(fill<Config>("", {"server.port=0"}).problems,
            "argument 1: \"server.port=0\": \"0\" is out of range (allowed: 1 to 65535)");
}

}  // namespace
}  // namespace ddpxx::blame_test
