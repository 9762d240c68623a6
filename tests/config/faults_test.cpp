// Faults of a configuration that must end in a clear message, numbered as in the fault table: F1 to F12, and A1 to A13,
// the surprising features of YAML and JSON parsers. A row that other tests of this folder cover has a test here as
// well, so that each row is found by its number.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/config/files/config_file.hpp>
#include <ddpxx/config/files/json.hpp>
#include <ddpxx/config/files/yaml.hpp>
#include <ddpxx/config/fill/config_builder.hpp>
#include <ddpxx/config/line/arguments.hpp>
#include <ddpxx/config/print.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>

#include "../temporary_folder.hpp"
#include "filled.hpp"

namespace ddpxx::faults_test {
namespace {

using namespace detail;

struct AdamW {
  double learning_rate = 3e-4;
  std::int64_t warmup_steps = 0;
  static constexpr auto describe() {
    return fields(field<&AdamW::learning_rate>("", above(0.0), at_most(1.0), was("lr")));
  }
};
struct Sgd {
  double learning_rate = 0.1;
};
struct Training {
  std::int64_t max_steps = 100;
  std::uint64_t seed = 1;
  int batch_size = 12;
  double timeout = 60;
  bool shuffle = true;
  std::string country = "none";
  std::vector<std::string> files;
  static constexpr auto describe() {
    return fields(field<&Training::timeout>("", Unit::seconds, above(0.0)),
                  field<&Training::seed>("", was("run.seed")));
  }
};
struct Config {
  std::variant<AdamW, Sgd> optimizer;
  Training training;
  static constexpr auto describe() { return fields(field<&Config::optimizer>("", choices("adamw", "sgd"))); }
  std::vector<FieldError> check() const {
    const auto* adamw = std::get_if<AdamW>(&optimizer);
    std::vector<FieldError> errors;
    if (adamw != nullptr && adamw->warmup_steps > training.max_steps)
      errors.push_back({"optimizer.warmup_steps",
                        "must not exceed training.max_steps (" + std::to_string(training.max_steps) + ')'});
    if (training.batch_size % 4 != 0)
      errors.push_back({"training.batch_size", "must be a multiple of the 4 ranks; the nearest are 8 and 12"});
    return errors;
  }
};

/// A config from a JSON text, called t.json in messages.
Filled<Config> fill_json(std::string_view json) {
  Filled<Config> result;
  ConfigBuilder builder{table_of<Config>(), &result.config};
  builder.apply(read_json_text(json, "t.json", 0));
  builder.finish();
  result.problems = problem_report(builder.problems());
  return result;
}

struct Fault {
  std::string name;
  std::string yaml;
  std::vector<const char*> arguments;
  std::string report;
};

class Faults : public testing::TestWithParam<Fault> {};

TEST_P(Faults, AreToldAtTheirPlaces) {
  EXPECT_EQ(fill<Config>(GetParam().yaml, GetParam().arguments).problems, GetParam().report);
}

INSTANTIATE_TEST_SUITE_P(
    Rows, Faults,
    testing::Values(
        Fault{"F1_misspelt_key",
              "training:\n  sede: 1\n",
              {},
              "t.yaml:2:3: training.sede: unknown key; did you mean training.seed?\n"
              "      sede: 1\n"
              "      ^"},
        Fault{"F1_misspelt_argument",
              "",
              {"trainig.seed=1"},
              "argument 1: \"trainig.seed=1\": unknown key; did you mean training.seed?"},
        Fault{"F2_moved_in_its_group",
              "optimizer: {lr: 0.1}\n",
              {},
              "t.yaml:1:13: optimizer.lr: that key moved to optimizer.learning_rate\n"
              "    optimizer: {lr: 0.1}\n"
              "                ^"},
        Fault{"F2_moved_from_another_group",
              "run: {seed: 3}\n",
              {},
              "t.yaml:1:1: run: that key moved to training.seed\n"
              "    run: {seed: 3}\n"
              "    ^"},
        Fault{"F3_all_in_one_run",
              "training:\n  timeout: 5 minuets\n  shuffle: maybe\noptimizer: {learning_rate: 2}\n",
              {"optimizer.warmup_steps=.nan", "training.timeout=-1s"},
              "t.yaml:2:12: training.timeout: \"5 minuets\" is not a duration (allowed: above 0, in seconds, or as "
              "500ms, 30s, 10m, 1h30m, 2d)\n"
              "      timeout: 5 minuets\n"
              "               ^\n"
              "t.yaml:3:12: training.shuffle: \"maybe\" is not true or false (allowed: true, false, yes, no, on, off, "
              "1, 0)\n"
              "      shuffle: maybe\n"
              "               ^\n"
              "t.yaml:4:28: optimizer.learning_rate: \"2\" is out of range (allowed: above 0 and at most 1)\n"
              "    optimizer: {learning_rate: 2}\n"
              "                               ^\n"
              "argument 1: \"optimizer.warmup_steps=.nan\": \".nan\" is not a whole number\n"
              "argument 2: \"training.timeout=-1s\": \"-1s\" is out of range (allowed: above 0, in seconds, or as "
              "500ms, 30s, 10m, 1h30m, 2d)"},
        Fault{"F4_twice_in_a_file",
              "training: {seed: 1}\ntraining.seed: 2\n",
              {},
              "t.yaml:2:1: training.seed: is given twice; the first is at t.yaml:1:12\n"
              "    training.seed: 2\n"
              "    ^"},
        Fault{"F5_too_large",
              "training: {max_steps: 9223372036854775808}\n",
              {},
              "t.yaml:1:23: training.max_steps: \"9223372036854775808\" is out of range (allowed: -9223372036854775808 "
              "to 9223372036854775807)\n"
              "    training: {max_steps: 9223372036854775808}\n"
              "                          ^"},
        Fault{"F5_negative",
              "training: {seed: -1}\n",
              {},
              "t.yaml:1:18: training.seed: \"-1\" is out of range (allowed: 0 to 18446744073709551615)\n"
              "    training: {seed: -1}\n"
              "                     ^"},
        Fault{"F5_fraction",
              "training: {seed: 3.9}\n",
              {},
              "t.yaml:1:18: training.seed: \"3.9\" is not a whole number\n"
              "    training: {seed: 3.9}\n"
              "                     ^"},
        Fault{"F5_octal",
              "training: {seed: 010}\n",
              {},
              "t.yaml:1:18: training.seed: \"010\" starts with a zero, which some read as octal; write 10\n"
              "    training: {seed: 010}\n"
              "                     ^"},
        Fault{"F6_tab",
              "training:\n\tseed: 1\n",
              {},
              "t.yaml:2:1: a tab in the indentation; YAML wants spaces\n"
              "     seed: 1\n"
              "    ^"},
        Fault{"F6_indentation",
              "training:\n  seed: 1\n   shuffle: no\n",
              {},
              "t.yaml:3:11: a value is not expected here (is the indentation right? a text with a colon in it needs "
              "quotes)\n"
              "       shuffle: no\n"
              "              ^"},
        Fault{"F6_open_bracket",
              "training: {seed: 1\n",
              {},
              "t.yaml:1:11: this { is never closed\n"
              "    training: {seed: 1\n"
              "              ^"},
        Fault{"F6_two_documents",
              "training: {seed: 1}\n---\ntraining: {seed: 2}\n",
              {},
              "t.yaml:2:1: a second document starts here; a configuration is one\n"
              "    ---\n"
              "    ^"},
        Fault{"F6_nul",
              std::string{"a: \0\n", 5},
              {},
              "t.yaml:1:4: a NUL byte; this is not a text file\n"
              "    a: \\x00\n"
              "       ^"},
        Fault{"F6_not_utf8",
              "a: \xC3\n",
              {},
              "t.yaml:1:4: byte 3 is not UTF-8\n"
              "    a: \\xc3\n"
              "       ^"},
        Fault{"F7_list",
              "- 1\n",
              {},
              "t.yaml:1:1: a configuration has lines `key: value` (is the space after the colon missing?)\n"
              "    - 1\n"
              "    ^"},
        Fault{"F7_text",
              "seed\n",
              {},
              "t.yaml:1:1: a configuration has lines `key: value` (is the space after the colon missing?)\n"
              "    seed\n"
              "    ^"},
        Fault{"F8_alias_of_itself",
              "training: {files: &x [*x]}\n",
              {},
              "t.yaml:1:23: an alias inside of what it stands for\n"
              "    training: {files: &x [*x]}\n"
              "                          ^"},
        Fault{"F9_missing",
              "training: {country: \"${training.contry}\"}\n",
              {},
              "t.yaml:1:21: training.country: training.country -> ${training.contry}: unknown key; did you mean "
              "training.country?\n"
              "    training: {country: \"${training.contry}\"}\n"
              "                        ^"},
        Fault{"F9_circle",
              "training: {seed: \"${training.max_steps}\", max_steps: \"${training.seed}\"}\n",
              {},
              "t.yaml:1:18: training.seed: training.max_steps -> training.seed -> training.max_steps: these name each "
              "other in a circle\n"
              "    training: {seed: \"${training.max_steps}\", max_steps: \"${tr\n"
              "                     ^"},
        Fault{"F9_variable",
              "training: {country: \"${oc.env:DDPXX_NO_SUCH_VARIABLE}\"}\n",
              {},
              "t.yaml:1:21: training.country: training.country -> ${oc.env:DDPXX_NO_SUCH_VARIABLE}: this variable is "
              "not set; set it, or write ${oc.env:DDPXX_NO_SUCH_VARIABLE,DEFAULT}\n"
              "    training: {country: \"${oc.env:DDPXX_NO_SUCH_VARIABLE}\"}\n"
              "                        ^"},
        Fault{"F11_quote",
              "",
              {"training.files=['a, b]"},
              "argument 1: \"training.files=['a, b]\": a quote is never closed"},
        Fault{"F11_empty", "", {"training.seed="}, "argument 1: \"training.seed=\": \"\" is not a whole number"},
        Fault{"F11_key_of_a_value",
              "",
              {"training.seed.c=1"},
              "argument 1: \"training.seed.c=1\": unknown key; `training.seed` is a value and has no keys"},
        Fault{"F11_unknown_alternative",
              "",
              {"optimizer=adam"},
              "argument 1: \"optimizer=adam\": \"adam\" is not known (allowed: adamw or sgd); did you mean adamw?"},
        Fault{"F11_key_of_another_alternative",
              "",
              {"optimizer=sgd", "optimizer.warmup_steps=1"},
              "argument 2: \"optimizer.warmup_steps=1\": is not a key of optimizer=\"sgd\"; it belongs to adamw"},
        Fault{"F11_sweep_without_m",
              "",
              {"training.seed=1,2"},
              "argument 1: \"training.seed=1,2\": \"1,2\" is not a whole number; several values are a sweep: add -m"},
        Fault{"F12_two_fields",
              "training: {max_steps: 50}\n",
              {"optimizer.warmup_steps=60"},
              "argument 1: \"optimizer.warmup_steps=60\": must not exceed training.max_steps (50)"},
        Fault{"F12_nearest_values",
              "training: {batch_size: 10}\n",
              {},
              "t.yaml:1:24: training.batch_size: must be a multiple of the 4 ranks; the nearest are 8 and 12\n"
              "    training: {batch_size: 10}\n"
              "                           ^"},
        Fault{"A2_octal",
              "training: {seed: 007}\n",
              {},
              "t.yaml:1:18: training.seed: \"007\" starts with a zero, which some read as octal; write 7\n"
              "    training: {seed: 007}\n"
              "                     ^"},
        Fault{
            "A4_letters_for_a_truth",
            "training: {shuffle: y}\n",
            {},
            "t.yaml:1:21: training.shuffle: \"y\" is not true or false (allowed: true, false, yes, no, on, off, 1, 0)\n"
            "    training: {shuffle: y}\n"
            "                        ^"}),
    [](const auto& instance) { return instance.param.name; });

struct JsonFault {
  std::string name;
  std::string json;
  std::string report;
};

class JsonFaults : public testing::TestWithParam<JsonFault> {};

TEST_P(JsonFaults, AreToldAtTheirPlaces) { EXPECT_EQ(fill_json(GetParam().json).problems, GetParam().report); }

INSTANTIATE_TEST_SUITE_P(
    Rows, JsonFaults,
    testing::Values(
        JsonFault{"F4_A1_twice", R"({"training": {"seed": 1}, "training": {"seed": 2}})",
                  "t.json:1:27: training: is given twice; the first is at t.json:1:2\n"
                  "    {\"training\": {\"seed\": 1}, \"training\": {\"seed\": 2}}\n"
                  "                              ^"},
        JsonFault{"F6_trailing_comma", R"({"training": {"seed": 1,}})",
                  "t.json:1:24: nothing follows this comma; JSON has none behind the last value\n"
                  "    {\"training\": {\"seed\": 1,}}\n"
                  "                           ^"},
        JsonFault{"F6_A10_two_documents", R"({} {})",
                  "t.json:1:4: something follows the end; a configuration is one document\n"
                  "    {} {}\n"
                  "       ^"},
        JsonFault{"A5_fraction", R"({"training": {"batch_size": 3.9}})",
                  "t.json:1:29: training.batch_size: \"3.9\" is not a whole number\n"
                  "    {\"training\": {\"batch_size\": 3.9}}\n"
                  "                                ^"},
        JsonFault{
            "A5_too_large", R"({"training": {"batch_size": 4294967297}})",
            "t.json:1:29: training.batch_size: \"4294967297\" is out of range (allowed: -2147483648 to 2147483647)\n"
            "    {\"training\": {\"batch_size\": 4294967297}}\n"
            "                                ^"},
        JsonFault{"A5_negative", R"({"training": {"seed": -1}})",
                  "t.json:1:23: training.seed: \"-1\" is out of range (allowed: 0 to 18446744073709551615)\n"
                  "    {\"training\": {\"seed\": -1}}\n"
                  "                          ^"},
        JsonFault{"A5_truth", R"({"training": {"batch_size": true}})",
                  "t.json:1:29: training.batch_size: \"true\" is not a whole number\n"
                  "    {\"training\": {\"batch_size\": true}}\n"
                  "                                ^"},
        JsonFault{"A5_large_power", R"({"training": {"max_steps": 1e20}})",
                  "t.json:1:28: training.max_steps: \"1e20\" is out of range (allowed: -9223372036854775808 to "
                  "9223372036854775807)\n"
                  "    {\"training\": {\"max_steps\": 1e20}}\n"
                  "                               ^"}),
    [](const auto& instance) { return instance.param.name; });

TEST(Fault4, AnArgumentGivenTwiceCountsTheLastTime) {
  const auto filled = fill<Config>("", {"training.seed=1", "training.seed=2"});
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(filled.config.training.seed, 2U);
}

TEST(Fault5, APowerOfTenIsAWholeNumber) {
  EXPECT_EQ(fill<Config>("training: {seed: 1e3}\n").config.training.seed, 1000U);
  EXPECT_EQ(fill_json(R"({"training": {"seed": 1e3}})").config.training.seed, 1000U);
}

TEST(Fault6, AByteOrderMarkAndLineEndsOfOtherSystemsAreTaken) {
  const auto filled = fill<Config>("\xEF\xBB\xBFtraining:\r\n  seed: 3\r\n");
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(filled.config.training.seed, 3U);
}

TEST(Fault7, AnEmptyFileLeavesTheDefaultsAndIsTold) {
  const TemporaryFolder folder;
  const auto entries = read_config_file(folder.file("t.yaml", ""), 0);
  EXPECT_TRUE(entries.list.empty() && entries.problems.empty());
  ASSERT_EQ(entries.notices.size(), 1U);
  EXPECT_EQ(entries.notices[0].text, "this file says nothing");
}

std::string refusal(const std::filesystem::path& path) {
  try {
    read_config_file(path, 0);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    return error.what();
  }
  return "none";
}

TEST(Fault7, AFileThatCannotBeReadIsNamedWithTheReason) {
  const TemporaryFolder folder;
  const auto at = [&](const char* name) { return (folder / name).string(); };
  folder.file("huge.yaml", "");
  std::filesystem::resize_file(at("huge.yaml"), std::uintmax_t{100} << 20U);
  std::filesystem::create_directory(at("folder.yaml"));
  ASSERT_EQ(::mkfifo(at("pipe.yaml").c_str(), 0600), 0);
  EXPECT_EQ(refusal(at("huge.yaml")),
            "cannot read " + at("huge.yaml") + ": it has more than 16 MiB, which is too much for a configuration");
  EXPECT_EQ(refusal(at("folder.yaml")), "cannot read " + at("folder.yaml") + ": Is a directory");
  EXPECT_EQ(refusal(at("pipe.yaml")), "cannot read " + at("pipe.yaml") + ": it is not a regular file");
  EXPECT_EQ(refusal(at("none.yaml")), "cannot open " + at("none.yaml") + ": No such file or directory (errno 2)");
  EXPECT_EQ(refusal("/proc/self/mem"), "cannot read /proc/self/mem: Input/output error (errno 5)");
}

TEST(Fault7, AMillionKeysAreTooMany) {
  std::string yaml, json = "{";
  for (int i = 0; i < 1'000'000; ++i) {
    yaml += "k" + std::to_string(i) + ": 1\n";
    json += "\"k" + std::to_string(i) + "\": 1,\n";
  }
  EXPECT_EQ(fill<Config>(yaml).problems, "t.yaml:50000:9: more than 100000 values\n    k49999: 1\n            ^");
  EXPECT_EQ(fill_json(json).problems, "t.json:50000:11: more than 100000 values\n    \"k49999\": 1,\n              ^");
}

/// Ten levels of ten aliases each. The test also covers row A7.
TEST(Fault8, AliasesThatMultiplyAreRefused) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 10; ++i) {
    const auto below = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + below;
    for (int j = 0; j < 9; ++j) bomb += ", " + below;
    bomb += "]\n";
  }
  EXPECT_NE(fill<Config>(bomb).problems.find("more than 100000 values, counting what aliases stand for"),
            std::string::npos);
}

/// The test also covers row A8.
TEST(Fault8, DeepNestingIsRefused) {
  for (const std::size_t depth : {600U, 100'000U}) {
    const auto brackets = std::string(depth, '[') + std::string(depth, ']');
    EXPECT_EQ(read_yaml_text("a: " + brackets, "t.yaml", 0).problems.at(0).text, "nested more than 64 levels deep");
    EXPECT_EQ(read_json_text("{\"a\": " + brackets + '}', "t.json", 0).problems.at(0).text,
              "nested more than 64 levels deep");
  }
}

std::string problems_of_files(const std::filesystem::path& path) {
  std::string text;
  for (const auto& entries : read_config_files(path, 0))
    for (const auto& problem : entries.problems) text += problem.text + '\n';
  return text;
}

TEST(Fault8, FilesThatIncludeThemselvesShowTheChain) {
  const TemporaryFolder folder;
  const auto a = folder.file("a.yaml", "include: b.yaml\n"), b = folder.file("b.yaml", "include: a.yaml\n");
  EXPECT_EQ(problems_of_files(a), "includes itself: " + a + " -> " + b + " -> " + a + '\n');
}

TEST(Fault8, AHundredLevelsOfIncludesAreTooMany) {
  const TemporaryFolder folder;
  for (int i = 0; i < 100; ++i)
    folder.file("f" + std::to_string(i) + ".yaml", "include: f" + std::to_string(i + 1) + ".yaml\n");
  EXPECT_EQ(problems_of_files(folder / "f0.yaml"), "more than 16 levels of files that include files\n");
}

/// The tests of data and snapshots check that names from those files cannot lead to another folder.
TEST(Fault10, AnIncludeFromElsewhereIsTakenAndTold) {
  const TemporaryFolder folder;
  folder.file("base.yaml", "training: {seed: 5}\n");
  const auto entries = read_config_files(folder.file("conf/train.yaml", "include: ../base.yaml\n"), 0);
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].list.size(), 1U);
  ASSERT_EQ(entries[1].notices.size(), 1U);
  EXPECT_EQ(entries[1].notices[0].text,
            "\"../base.yaml\" is " + std::filesystem::canonical(folder / "base.yaml").string());
}

TEST(Fault11, AVeryLongArgumentIsShownShort) {
  const auto argument = "training.seed=" + std::string(1'000'000, 'x');
  EXPECT_EQ(fill<Config>("", {argument.c_str()}).problems, "argument 1: \"training.seed=" + std::string(286, 'x') +
                                                               "...\": \"" + std::string(60, 'x') +
                                                               "...\" is not a whole number");
}

TEST(ParserRow2, HexadecimalNumbersAreTakenAndTold) {
  const auto filled = fill<Config>("training: {seed: 0x10}\n");
  EXPECT_EQ(filled.config.training.seed, 16U);
  EXPECT_EQ(filled.notices, "t.yaml:1:18: training.seed: \"0x10\" is hexadecimal and read as 16\n");
}

TEST(ParserRow3, WholeNumbersMayBeWrittenAsPeopleDo) {
  for (const auto& [text, value] : {std::pair{"1e3", 1000}, {"1_000", 1000}, {"2k", 2000}, {"1.5M", 1'500'000}}) {
    const auto filled = fill<Config>("training: {max_steps: " + std::string{text} + "}\n");
    EXPECT_EQ(filled.problems, "");
    EXPECT_EQ(filled.config.training.max_steps, value);
  }
}

TEST(ParserRow4, TheTypeOfTheFieldDecidesWhatAWordIs) {
  for (const char* word : {"no", "off", "false", "0"}) {
    const auto filled = fill<Config>("training: {shuffle: " + std::string{word} + ", country: " + word + "}\n");
    EXPECT_EQ(filled.problems, "");
    EXPECT_FALSE(filled.config.training.shuffle);
    EXPECT_EQ(filled.config.training.country, word);
  }
}

TEST(ParserRow6, AMergeKeyMerges) {
  const auto filled = fill<Config>(
      "optimizer: &base {learning_rate: 0.5, warmup_steps: 1}\ntraining: {<<: {seed: 7, max_steps: 9}, seed: 8}\n");
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(filled.config.training.seed, 8U);
  EXPECT_EQ(filled.config.training.max_steps, 9);
}

TEST(ParserRow9, TwentyThousandKeysAreReadOnceEach) {
  std::string yaml = "training:\n  files:\n";
  for (int i = 0; i < 20'000; ++i) yaml += "  - f" + std::to_string(i) + "\n";
  const auto filled = fill<Config>(yaml);
  EXPECT_EQ(filled.problems, "");
  EXPECT_EQ(filled.config.training.files.size(), 20'000U);
}

/// The other half of this row is in F6_two_documents, F6_not_utf8, F6_nul and Fault6.
TEST(ParserRow10, MalformedTextIsToldByItsOffset) {
  EXPECT_EQ(fill<Config>("a: 1\nb: \xFF\n").problems, "t.yaml:2:4: byte 8 is not UTF-8\n    b: \\xff\n       ^");
}

TEST(ParserRow11, AnAliasIsToldWhereItStands) {
  EXPECT_EQ(fill<Config>("training:\n  country: &x none\n  seed: *x\n").problems,
            "t.yaml:3:9: training.seed: \"none\" is not a whole number\n      seed: *x\n            ^");
}

TEST(ParserRow12, TextsArePrintedInQuotes) {
  for (const char* text : {"no", "1e3", "null", "~", "0x10"}) {
    Config config;
    config.training.country = text;
    EXPECT_NE(print_yaml(config).find("country: \"" + std::string{text} + '"'), std::string::npos);
  }
}

TEST(ParserRow13, JsonPairsOfEscapesAreOneCharacter) {
  EXPECT_EQ(fill_json(R"({"training": {"country": "\ud83d\ude00"}})").config.training.country, "\xF0\x9F\x98\x80");
}

}  // namespace
}  // namespace ddpxx::faults_test
