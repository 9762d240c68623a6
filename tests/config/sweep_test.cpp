#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/config/alias.hpp>
#include <ddpxx/config/sweep.hpp>
#include <ddpxx/config/table/secret_key.hpp>
#include <ddpxx/config/text/sweep_value.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>

namespace sweep_test {
namespace {

using ddpxx::read_sweep;
using ddpxx::detail::looks_like_sweep;
using ddpxx::detail::read_sweep_value;
using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

std::vector<ddpxx::SweepJob> jobs_of(Words arguments) {
  arguments.insert(arguments.begin(), "--multirun");
  return read_sweep(arguments)->jobs;
}

std::vector<std::string> arguments_of(const Words& arguments) {
  std::vector<std::string> jobs;
  for (const auto& job : jobs_of(arguments)) {
    std::string line;
    for (const auto& argument : job.arguments) line += (line.empty() ? "" : " ") + argument;
    EXPECT_EQ(job.number, jobs.size());
    jobs.push_back(line);
  }
  return jobs;
}

std::string refusal(const Words& arguments) {
  try {
    if (!read_sweep(arguments)) return "no sweep";
  } catch (const ddpxx::Error& error) {
    EXPECT_EQ(error.code(), ddpxx::Errc::config);
    return error.what();
  }
  return "no error";
}

TEST(Sweep, IsTheProductOfAllValuesTheLastFastest) {
  EXPECT_THAT(arguments_of({"lr=1e-3,3e-4", "name=x", "seed=range(3)"}),
              ElementsAre("lr=1e-3 name=x seed=0", "lr=1e-3 name=x seed=1", "lr=1e-3 name=x seed=2",
                          "lr=3e-4 name=x seed=0", "lr=3e-4 name=x seed=1", "lr=3e-4 name=x seed=2"));
  EXPECT_THAT(jobs_of({"lr=1,2", "name=x", "seed=0,1"})[2].varied, ElementsAre("lr=2", "seed=0"));
}

TEST(Sweep, WithoutVaryingArgumentsIsOneJob) {
  EXPECT_THAT(arguments_of({"--config-name", "gpt2", "a=b"}), ElementsAre("--config-name gpt2 a=b"));
  EXPECT_THAT(arguments_of({"a=choice(b)"}), ElementsAre("a=b"));
}

TEST(Sweep, VariesDashedArgumentsToo) {
  EXPECT_THAT(arguments_of({"--lr=1,2"}), ElementsAre("--lr=1", "--lr=2"));
  EXPECT_THAT(arguments_of({"--lr", "1,2", "--flag"}), ElementsAre("--lr 1 --flag", "--lr 2 --flag"));
  EXPECT_THAT(jobs_of({"--lr", "1,2"})[1].varied, ElementsAre("--lr 2"));
}

TEST(SweepValue, ChoosesAmongValues) {
  EXPECT_THAT(read_sweep_value("1,2,3").values, ElementsAre("1", "2", "3"));
  EXPECT_THAT(read_sweep_value("a, b").values, ElementsAre("a", "b"));
  EXPECT_THAT(read_sweep_value("choice(adam,sgd)").values, ElementsAre("adam", "sgd"));
  EXPECT_THAT(read_sweep_value("[1,2],[3,4]").values, ElementsAre("[1,2]", "[3,4]"));
  EXPECT_THAT(read_sweep_value("choice([1,2],'a,b')").values, ElementsAre("[1,2]", "'a,b'"));
  EXPECT_THAT(read_sweep_value("{a: 1, b: 'x,}'},{}").values, ElementsAre("{a: 1, b: 'x,}'}", "{}"));
}

TEST(SweepValue, LeavesQuotedAndPlainTextAlone) {
  for (const char* text : {"'a,b'", "\"a\\\",b\"", "don't", " x ", "[1,2]", "", ":)", "f(x)", "'tis"})
    EXPECT_THAT(read_sweep_value(text).values, ElementsAre(text));
  EXPECT_THAT(read_sweep_value("don't,'a,b'").values, ElementsAre("don't", "'a,b'"));
}

TEST(SweepValue, CountsRangesExactlyWithoutTheirEnd) {
  EXPECT_THAT(read_sweep_value("range(3)").values, ElementsAre("0", "1", "2"));
  EXPECT_THAT(read_sweep_value("range(8, 10)").values, ElementsAre("8", "9"));
  EXPECT_THAT(read_sweep_value("range(10,1,-4)").values, ElementsAre("10", "6", "2"));
  EXPECT_THAT(read_sweep_value("range(-0.1,0.3,0.1)").values, ElementsAre("-0.1", "0", "0.1", "0.2"));
  EXPECT_THAT(read_sweep_value("range(0.5,2)").values, ElementsAre("0.5", "1.5"));
  EXPECT_THAT(read_sweep_value("range(1e-3,3e-3,1e-3)").values, ElementsAre("0.001", "0.002"));
  EXPECT_THAT(read_sweep_value("range(1e3,2e3,500)").values, ElementsAre("1000", "1500"));
}

TEST(SweepValue, SaysWhatIsWrong) {
  const std::vector<std::pair<const char*, const char*>> cases{
      {"choice()", "has no values"},
      {"choice(a,)", "is empty"},
      {"1,,2", "is empty"},
      {"1,", "is empty"},
      {"range()", "has no values"},
      {"range(1,5,0)", "never ends"},
      {"range(5,1)", "is empty: its end is excluded"},
      {"range(a)", "\"a\" is not a number"},
      {"range(1k)", "is not a number"},
      {"range(1,2,3,4)", "one to three numbers"},
      {"range(1e-30,1)", "too far apart"},
      {"range(20000)", "more than 10000 values"},
      {"range(3", "this ( is never closed"},
      {"[1,2", "this [ is never closed"},
      {"'a,b", "this ' is never closed"},
      {"choice(a)b", "nothing may follow"},
      {"choice(a)b(c)", "nothing may follow"},
      {"1,range(3)", "must stand alone"},
      {"interval(0,1)", "interval(...) is not known here"},
  };
  for (const auto& [text, problem] : cases) {
    EXPECT_THAT(read_sweep_value(text).problem, HasSubstr(problem)) << text;
    EXPECT_THAT(read_sweep_value(text).values, ElementsAre()) << text;
  }
}

TEST(Sweep, NamesTheArgumentOfEachProblem) {
  EXPECT_EQ(refusal({"-m", "a=1", "b=choice()", "--jobs", "0"}),
            "argument 3: \"b=choice()\": choice(...) has no values\n"
            "argument 4: \"--jobs\": \"0\" is not a whole number from 1 to 1024");
  EXPECT_EQ(refusal({"-m", "a=range(1000)", "b=range(11)", "c=1,2"}),
            "argument 3: \"b=range(11)\": with this the sweep has more than 10000 jobs");
  EXPECT_THAT(refusal({"-m=1", "--multirun"}), HasSubstr("takes no value"));
  EXPECT_THAT(refusal({"-m", "a=1,2", "--sweep-dir"}), HasSubstr("needs a value"));
  EXPECT_THAT(refusal({"-m", "a=1\n"}), HasSubstr("line break"));
  EXPECT_EQ(refusal({"-m", "token=ab,,c", "--password", "range(abc)"}),
            "argument 2: \"token=***\": a value between the commas is empty; an empty text is written ''\n"
            "argument 4: \"***\": the value of this secret is not taken");
}

TEST(Sweep, RefusesSeveralValuesThatALaterArgumentReplaces) {
  const auto again = HasSubstr("argument 3: \"seed=3,4\": is given before with several values");
  EXPECT_THAT(refusal({"-m", "seed=1,2", "seed=3,4"}), again);
  EXPECT_THAT(refusal({"-m", "seed=1,2", "seed=3"}), HasSubstr("argument 3: \"seed=3\": is given before"));
  EXPECT_EQ(refusal({"-m", "seed=1", "seed=3,4"}), "no error") << "the last one counts, as without a sweep";
  EXPECT_EQ(refusal({"-m", "--add=1,2", "--add=3"}), "no error") << "a program may take an option several times";
}

TEST(Sweep, TakesItsOptionsOutOfTheArguments) {
  const auto sweep = read_sweep(
      Words{"a=1,2", "--sweep_dir=out", "--jobs", "4", "-m", "--metric", "-accuracy", "--slurm-array", "--flag"});
  ASSERT_TRUE(sweep);
  EXPECT_EQ(sweep->options.folder, "out");
  EXPECT_EQ(sweep->options.jobs_at_once, 4);
  EXPECT_EQ(sweep->options.metric, "-accuracy");
  EXPECT_EQ(sweep->options.action, ddpxx::SweepAction::write_slurm_array);
  EXPECT_THAT(sweep->jobs[1].arguments, ElementsAre("a=2", "--flag"));
  EXPECT_EQ(read_sweep(Words{"--multirun", "--dry-run"})->options.action, ddpxx::SweepAction::print);
}

TEST(Sweep, ShowsNoSecrets) {
  const auto jobs = jobs_of({"a=1,2", "hub.auth_token=abc", "--db-password", "xy", "max_tokens=5"});
  EXPECT_THAT(jobs[1].arguments, ElementsAre("a=2", "hub.auth_token=abc", "--db-password", "xy", "max_tokens=5"));
  EXPECT_THAT(jobs[1].for_the_record(),
              ElementsAre("a=2", "hub.auth_token=***", "--db-password", "***", "max_tokens=5"));
  EXPECT_THAT(jobs[1].varied, ElementsAre("a=2"));
  EXPECT_THAT(jobs_of({"a=1"})[0].for_the_record(), ElementsAre("a=1"));
}

TEST(Sweep, HidesNothingByNameThatItVaries) {
  const auto jobs = jobs_of({"token_dim=64,128", "pad_token=0,1", "token=x"});
  EXPECT_THAT(jobs[1].varied, ElementsAre("token_dim=64", "pad_token=1"));
  EXPECT_THAT(jobs[1].for_the_record(), ElementsAre("token_dim=64", "pad_token=1", "token=***"));
}

TEST(Sweep, TakesTheWordBehindASecretsKeyWhole) {
  const auto jobs = jobs_of({"lr=1,2", "--token", "QUJDRA==", "--api-key", "a=b"});
  EXPECT_THAT(jobs[1].arguments, ElementsAre("lr=2", "--token", "QUJDRA==", "--api-key", "a=b"));
  EXPECT_THAT(jobs[1].for_the_record(), ElementsAre("lr=2", "--token", "***", "--api-key", "***"));
  EXPECT_THAT(arguments_of({"--use-auth-token", "lr=1,2"}),
              ElementsAre("--use-auth-token lr=1", "--use-auth-token lr=2"))
      << "--use-auth-token is a switch, although its name looks like a secret's";
}

struct WithSecret {
  std::string pin;
  std::string pin_code;
  std::string token;
  std::string first;
  bool use_token = false;
  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(field<&WithSecret::pin>("", secret()), field<&WithSecret::pin_code>("", secret()),
                  field<&WithSecret::first>("", secret()));
  }
  static constexpr auto aliases() { return std::array{ddpxx::Alias{"creds[0]", "first"}}; }
};

TEST(Sweep, KnowsTheSecretsOfItsConfig) {
  const char* arguments[] = {"program", "-m", "--pin=1,2", "token=x", "other_token=y"};
  const auto sweep = read_sweep(5, arguments, ddpxx::table_of<WithSecret>());
  ASSERT_TRUE(sweep);
  EXPECT_THAT(sweep->jobs[1].arguments, ElementsAre("--pin=2", "token=x", "other_token=y"));
  EXPECT_THAT(sweep->jobs[1].for_the_record(), ElementsAre("--pin=***", "token=x", "other_token=***"));
}

TEST(Sweep, KnowsASecretOfItsConfigHoweverItIsWritten) {
  const char* arguments[] = {"program", "-m",  "size=1,2",  "--pin-code=1", "--pin", "QUJ=",
                             "--token", "a=b", "creds=[x]", "--use-token",  "lr=3"};
  const auto sweep = read_sweep(11, arguments, ddpxx::table_of<WithSecret>());
  ASSERT_TRUE(sweep);
  EXPECT_EQ(sweep->jobs.size(), 2U);
  EXPECT_THAT(sweep->jobs[1].for_the_record(), ElementsAre("size=2", "--pin-code=***", "--pin", "***", "--token", "a=b",
                                                           "creds=***", "--use-token", "lr=3"));
}

TEST(SecretKeys, AreToldByTheirWords) {
  for (const char* key : {"token", "a.token", "HF_TOKEN", "api_key", "aws-secret-access-key", "wandb.api-key",
                          "aws_secret_key", "password", "client_secret", "credential"})
    EXPECT_TRUE(ddpxx::detail::sounds_secret(key)) << key;
  for (const char* key : {"tokens", "max_new_tokens", "key", "token.length", "keyboard", "tokenizer", "", "secrets.x",
                          "token_dim", "password_length", "api_key_file"})
    EXPECT_FALSE(ddpxx::detail::sounds_secret(key)) << key;
}

TEST(Sweep, IsAskedForByMultirunOrByMBesideASetting) {
  EXPECT_TRUE(read_sweep(Words{"--multirun"}));
  EXPECT_TRUE(read_sweep(Words{"-m", "a=1"}));
  EXPECT_FALSE(read_sweep(Words{"-m", "5"}));
  EXPECT_FALSE(read_sweep(Words{"a=1,2"}));
  const char* arguments[] = {"-m", "a=1"};
  const auto& table = ddpxx::table_of<WithSecret>();
  EXPECT_FALSE(read_sweep(2, arguments, table)) << "the program's name must not count as an argument";
  EXPECT_FALSE(read_sweep(0, nullptr, table));
}

TEST(SweepValue, IsRecognizedWhereOneValueIsExpected) {
  for (const char* text : {"1,2", "range(3)", "choice(a,b)", "[1,2],[3]", "glob(*)"})
    EXPECT_TRUE(looks_like_sweep(text)) << text;
  for (const char* text : {"", "1", "[1,2]", "'1,2'", "1,", ",", "1,2(", "range", "orange(3)", "range(3)x"})
    EXPECT_FALSE(looks_like_sweep(text)) << text;
}

}  // namespace
}  // namespace sweep_test
