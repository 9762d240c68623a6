// The schema accepts and refuses the same files as the parser, and other languages read printed configs as equal
// values.
//
// These cases are not tested, because the schema and the parser cannot agree: a key given twice, and one setting under
// two names; an alias of a value that several alternatives of a variant have, each with another range; the range of a
// number that is written as a text (`5M`), and whether such a text is a whole number in the unit of its field
// (`1.3KiB`, `250us`); numbers that PyYAML reads as other numbers (`010`, `1:30`, `0b11`, a hexadecimal size), dates,
// and keys that are not texts; `yes` where `true` is a name; NaN; floating-point numbers beyond the range of their
// type; references such as `${...}`.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/config/files/json.hpp>
#include <ddpxx/config/files/yaml.hpp>
#include <ddpxx/config/fill/config_builder.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/print.hpp>
#include <ddpxx/config/show/print_json.hpp>
#include <ddpxx/config/show/schema.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/config/walk.hpp>

#include "../parity/python.hpp"
#include "../temporary_folder.hpp"
#include "everything.hpp"

namespace ddpxx::schema_test {
namespace {

using namespace detail;

/// A key, and values to write behind it.
struct Values {
  const char* key;
  std::vector<const char*> valid;
  std::vector<const char*> invalid;
};

std::vector<Values> values_of_all_types() {
  return {
      {"numbers.whole",
       {"5",
        "-7",
        "+5",
        "0",
        "-0",
        "1000.0",
        "5.",
        "1_000",
        "1e3",
        "1E3",
        "50k",
        "1.5k",
        "2T",
        "0x10",
        "\"12\"",
        "'7'",
        "\"1_000\"",
        "\"5 k\"",
        "9223372036854775807",
        "-9223372036854775808",
        "${seed}",
        "\"${seed}\"",
        "1${seed}"},
       {"1.5",
        "abc",
        "true",
        "yes",
        "",
        "~",
        "null",
        "[1]",
        "{a: 1}",
        "1e",
        "50q",
        "25MiB",
        "10m",
        "\"010\"",
        "\"1__0\"",
        "\"1.5\"",
        "9223372036854775808",
        "-9223372036854775809",
        "1e3.5",
        ".inf"}},
      {"numbers.count", {"1", "8", "1e2", "2k"}, {"0", "-1", "0.5", "1.5", "half"}},
      {"numbers.tiny", {"127", "-128"}, {"128", "-129", "300"}},
      {"numbers.huge", {"18446744073709551615", "0"}, {"-1", "18446744073709551616"}},
      {"numbers.maybe", {"null", "Null", "NULL", "~", "", "3"}, {"\"null\"", "none", "3000000000"}},
      {"numbers.real",
       {"1", "1.5", "1e-3", "1.0e-3", ".5", "5.", "-2", "50k", "3M", "1e3", "\"0.5\"", "1_000.5", "${numbers.share}"},
       {".inf", "-.inf", "inf", "abc", "true", "null", "", "[1.5]", "0x", "25MiB", "1.2.3", "."}},
      {"numbers.share", {"0.5", "1e-3", "0.999"}, {"0", "1", "-0.1", "1.5", "50%"}},
      {"numbers.single", {"0.1", "1e10", "-3"}, {"abc", "false"}},
      {"numbers.limit", {".inf", "+.inf", "inf", "\".inf\"", "5", "1e6"}, {"-.inf", "0", "-1", "infinite"}},
      {"numbers.bytes",
       {"0", "1024", "25MiB", "2GB", "64kB", "1.5KiB", "1e6", "\"10 MB\"", "5B", "3gib", "1_000"},
       {"-1", "50k", "1.5", "25Mi", "MiB", "true", "null", "10 MiB B", "10m"}},
      {"numbers.seconds",
       {"600", "10m", "1h30m", "30s", "2d", "2000ms", "1e3", "\"1 h\"", "1.5h"},
       {"0", "10x", "1h30", "1h 30m", "m10", "null", "[1]", "1.5", "50k"}},
      {"numbers.wait", {"0", "60", "0.5", "500ms", "30s", "1m"}, {"-1", "61", "10y", "abc", "25MiB"}},
      {"texts.truth",
       {"true", "false", "yes", "no", "on", "off", "1", "0", "True", "FALSE", "\"yes\"", "tRuE", "'1'",
        "${oc.env:DDPXX_NOBODY_SETS_THIS,on}"},
       {"2", "-1", "y", "n", "maybe", "null", "", "[true]", "\"true \"", "0.5", "{}"}},
      {"texts.doubt", {"null", "", "on", "0"}, {"2", "nil", "\"null\""}},
      {"texts.text",
       {"abc", "12", "1.5", "true", "yes", "\"null\"", "\"\"", "a b", "1e3", "${texts.path}", "'~'", "x${seed}y",
        ".inf"},
       {"null", "~", "", "[a]", "{a: b}", "{}"}},
      {"texts.nothing", {"null", "", "abc", "12"}, {"[a]", "{}"}},
      {"texts.path", {"/tmp", "./x", "12", "\"\""}, {"null", "[a]"}},
      {"texts.choice",
       {"true", "\"true\"", "3", "\"3\"", "some", "false"},
       {"other", "4", "null", "3.5", "[some]", "\"yes\""}},
      {"texts.format", {"fp32", "\"bf16\"", "off", "\"off\""}, {"fp16", "32", "null", "", "[fp32]", "BF16", "1"}},
      {"texts.other", {"null", "off", "bf16"}, {"fp64", "\"null\""}},
      {"texts.pause",
       {"500ms", "1h30m", "90s", "\"2 m\"", "-1s", "1.5s", "2d", "1e3s"},
       {"5", "0", "0.5", "abc", "1h30", "10y", "null", "true", "[1s]", "1h 30m"}},
      {"texts.timeout", {"null", "30s"}, {"30", "\"null\"", "s"}},
      {"texts.token", {"abc", "12"}, {"null", "[x]"}},
      {"lists.wholes",
       {"[]", "[1, 2]", "[1e3, 5k]", "[\"7\"]", "[\"${seed}\"]", "${lists.texts}"},
       {"[-1]", "[a]", "[1.5]", "5", "null", "", "[[1]]", "[null]", "{a: 1}", "abc"}},
      {"lists.betas", {"[0.9, 1]", "[1e-3, 0.5]"}, {"[0.9]", "[1, 2, 3]", "[a, b]", "0.9", "[]"}},
      {"lists.texts", {"[a, 1, true]", "[]"}, {"[null]", "a", "[[a]]"}},
      {"lists.truths", {"null", "[true, no, 1]", "[]"}, {"[2]", "[maybe]", "true"}},
      {"lists.rows", {"[[1, 2], []]", "[]"}, {"[1]", "[[a]]", "null"}},
      {"lists.formats", {"[fp32, off]", "[]"}, {"[fp16]", "fp32"}},
      {"lists.weights",
       {"{a: 1}", "{}", "{a: 0.5, b: 1e3}", "{x.y: 2}", "{a: \"${numbers.share}\"}"},
       {"{a: -1}", "{a: b}", "[1]", "5", "null", "", "{a: null}", "{a: [1]}"}},
      {"lists.names", {"{a: x, b: null}", "{}"}, {"{a: [x]}", "x"}},
      {"outer",
       {"null", "", "{}", "{width: 4}", "{inner: {depth: 1}}", "{inner: }", "{inner: {}}"},
       {"5", "[1]", "abc", "\"\"", "{w: 1}", "{inner: 3}", "{inner: {dept: 1}}", "{width: }", "true"}},
      {"numbers.many", {"4"}, {"0", "null"}},
      {"sizes", {"[4, 5]", "[\"4\", 1e3]"}, {"[4]", "[1, 2, 3]", "5", "null", "[a, 1]", "(1, 2)"}},
      {"bias", {"true", "Yes", "1", "'on'"}, {"false", "0", "null", "2", "[true]", "maybe", "{x: true}", "{}"}},
      {"init_from", {"scratch", "'resume'"}, {"gpt2", "null", "[scratch]", "{a: scratch}"}},
      {"legacy", {"{depth: 3}"}, {"{}", "{width: 1}", "5", "null", "{depth: x}"}},
      {"outer_config",
       {"{wide: 3}", "{width: 3}", "{inner: {depth: 1}}", "{old: 5}", "{old: {a: 1}}", "null", "{}"},
       {"{w: 1}", "5", "{older: 1}", "{wide: x}"}},
      {"shell", {"{wide: 3}", "{old: x}", "{width: 3}"}, {"{w: 1}", "x"}},
      {"strategy",
       {"fsdp", "\"ddp\"", "{name: fsdp}", "null", "{bucket_bytes: 1MiB}", "${oc.env:DDPXX_NOBODY_SETS_THIS,ddp}"},
       {"zero", "5", "{nam: x}", "[fsdp]", "{name: null}", "{name: zero}"}},
      {"ddp", {"fsdp", "{name: fsdp}", "null"}, {"zero", "{nam: x}"}},
      {"lr", {"0.1", "1e-3"}, {"abc", "null", "[1]"}},
      {"half",
       {"true", "False", "yes", "0", "\"on\"", "${oc.env:DDPXX_NOBODY_SETS_THIS,on}"},
       {"bf16", "fp32", "2", "null", "[true]", "{a: true}"}},
      {"optimizer",
       {"adam", "sgd", "none", "null", "", "{}", "{name: sgd}", "{learning_rate: 1}", "{name: none}",
        "{name: sgd, momentum: {value: 0.5, nesterov: yes}}", "{name: adam, betas: [0.1, 0.2]}",
        "{name: sgd, momentum: }", "${oc.env:DDPXX_NOBODY_SETS_THIS,sgd}",
        "{name: \"${oc.env:DDPXX_NOBODY_SETS_THIS,sgd}\", momentum: {value: 1}}"},
       {"rmsprop", "5", "[adam]", "{name: rmsprop}", "{name: null}", "{momentum: {value: 1}}",
        "{name: sgd, betas: [1, 2]}", "{name: none, learning_rate: 1}", "{name: sgd, momentum: 0.9}",
        "{name: sgd, learning_rate: fast}", "{lr: 1}", "{learning_rate: 0}", "{name: sgd, momentum: {nesterov: 2}}",
        "true"}},
      {"opt", {"sgd", "{name: sgd, momentum: {value: 1}}"}, {"{name: x}", "{momentum: 1}"}},
      {"hydra", {"{run: {dir: x}}", "5", "null"}, {}},
  };
}

struct File {
  std::string text;
  std::string format = "yaml";
  bool valid = false;
};

/// The path `a.b` and a value, as the lines of a file.
std::string yaml_of(std::string_view key, std::string_view value) {
  std::string text, indent;
  for (const auto& name : path_segments(key)) {
    text += (text.empty() ? "" : "\n") + indent + name + ':';
    indent += "  ";
  }
  return text + ' ' + std::string{value} + '\n';
}

std::vector<File> corpus() {
  std::vector<File> files;
  for (const auto& [key, valid, invalid] : values_of_all_types()) {
    for (const auto* value : valid) files.push_back({yaml_of(key, value), "yaml", true});
    for (const auto* value : invalid) files.push_back({yaml_of(key, value), "yaml", false});
  }
  for (const char* text : {"", "# nothing\n", "{}", "null\n", "seed: 3\nouter: {width: 1}\n", "numbers.count: 5\n",
                           "outer.inner: {depth: 3}\n", "lists.weights.x: 1\n", "opt.name: sgd\n",
                           "base: &x {depth: 1}\n", "outer: {inner: &x {depth: 1}, width: 2}\n"})
    files.push_back({text, "yaml", std::string_view{text}.find("base") == std::string_view::npos});
  for (const char* text : {"sed: 3\n", "- 1\n", "5\n", "abc\n", "numbers: {cont: 1}\n", "nubmers.count: 1\n",
                           "seed: 1\nextra: 2\n", "[]\n", "hydr: 1\n", "Seed: 1\n"})
    files.push_back({text, "yaml", false});
  for (const char* text : {"{}", "null", R"({"seed": 3})", R"({"seed": "3"})", R"({"seed": 1e3})", R"({"seed": -2.0})",
                           R"({"texts": {"truth": false, "text": true}})", R"({"lists": {"betas": [1, 2]}})",
                           R"({"optimizer": "sgd"})", R"({"texts": {"text": "\u00e9\n"}})"})
    files.push_back({text, "json", true});
  for (const char* text : {"[]", "3", R"({"seed": null})", R"({"seed": 1.5})", R"({"seed": true})", R"({"texts": []})",
                           R"({"texts": {"truth": 2}})", R"({"optimizer": {"name": "x"}})", R"({"x": 1})"})
    files.push_back({text, "json", false});
  return files;
}

SourceEntries entries_of(const File& file) {
  return file.format == "json" ? read_json_text(file.text, "t.json", 0) : read_yaml_text(file.text, "t.yaml", 0);
}

std::string problems_with(const File& file, Everything& config) {
  ConfigBuilder builder{table_of<Everything>(), &config};
  builder.apply(entries_of(file));
  builder.finish();
  return problem_report(builder.problems());
}

void write(const std::filesystem::path& path, const std::string& text) { std::ofstream{path} << text; }

TEST(Schema, JudgesFilesAsTheParserDoes) {
  const TemporaryFolder folder;
  const auto files = corpus();
  auto list = nlohmann::json::array();
  for (const auto& file : files) {
    Everything config;
    const auto problems = problems_with(file, config);
    EXPECT_EQ(problems.empty(), file.valid) << file.text << problems;
    list.push_back({{"text", file.text}, {"format", file.format}, {"valid", problems.empty()}});
  }
  EXPECT_GE(files.size(), 200U);
  write(folder.path() / "corpus.json", list.dump());
  write(folder.path() / "schema.json", json_schema(table_of<Everything>(), "everything"));
  EXPECT_EQ(run_python("../config/schema_corpus.py", {"verdicts", folder.path().string()}),
            std::to_string(files.size()) + " files agree\n");
}

TEST(Schema, SaysWhatEditorsShow) {
  const auto schema = nlohmann::json::parse(json_schema(table_of<Everything>(), "everything"));
  EXPECT_EQ(schema["$schema"], "http://json-schema.org/draft-07/schema#");
  EXPECT_EQ(schema["title"], "everything");
  const auto& numbers = schema["definitions"]["numbers"];
  EXPECT_EQ(numbers["description"], "Numbers of all kinds");
  EXPECT_EQ(numbers["properties"]["count"]["description"], "How many (a whole number, at least 1, in steps)");
  EXPECT_EQ(numbers["properties"]["count"]["default"], 8);
  EXPECT_EQ(numbers["properties"]["count"]["minimum"], 1);
  EXPECT_EQ(numbers["properties"]["share"]["exclusiveMaximum"], 1);
  EXPECT_EQ(schema["definitions"]["lists"]["properties"]["weights"]["default"],
            (nlohmann::json{{"a.b", 1.0}, {"", 2.0}}));
  const auto& token = schema["definitions"]["texts"]["properties"]["token"];
  EXPECT_EQ(token["description"], "Opens doors (a text)");
  EXPECT_FALSE(token.contains("default"));
  EXPECT_TRUE(schema["properties"]["ddp"]["doNotSuggest"]);
  EXPECT_TRUE(schema["properties"].contains("include"));
}

struct Unsigned {
  std::uint32_t workers = 4;
  static constexpr auto describe() { return fields(field<&Unsigned::workers>("Threads", at_least(1))); }
};

TEST(Schema, HasTheLowerBoundOfAnUnsignedNumber) {
  const auto schema = nlohmann::json::parse(json_schema(table_of<Unsigned>(), "unsigned"));
  EXPECT_EQ(schema["properties"]["workers"]["minimum"], 1) << schema["properties"]["workers"];
}

/// Random texts, many of which YAML readers take for something else.
std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> known{"",
                                              "yes",
                                              "No",
                                              "on",
                                              "null",
                                              "~",
                                              "1e3",
                                              "010",
                                              "0x1F",
                                              "1_000",
                                              "1:30",
                                              ".inf",
                                              "-",
                                              "- a",
                                              "a: b",
                                              "# no",
                                              "a #b",
                                              "[1]",
                                              "{a: 1}",
                                              "&a",
                                              "*a",
                                              "!t",
                                              "|",
                                              ">",
                                              "%x",
                                              "@x",
                                              "`x`",
                                              "2020-01-01",
                                              " lead",
                                              "trail ",
                                              "'",
                                              "\"",
                                              "\\",
                                              "\n",
                                              "\t",
                                              "a\nb\n",
                                              "\x01\x1B",
                                              "\x7F",
                                              "\xC2\x85",
                                              "\xE2\x80\xA8",
                                              "\xEF\xBB\xBF",
                                              "\xC3\xA9",
                                              "\xF0\x9F\x98\x80",
                                              "<<",
                                              "=",
                                              "?",
                                              "true",
                                              "3",
                                              "1.5",
                                              "\r",
                                              "a\r\nb"};
  auto text = known[random() % known.size()];
  if (random() % 3 == 0) text += known[random() % known.size()];
  return text;
}
double random_real(std::mt19937& random) {
  static constexpr std::array kKnown{0.0, 1.0, 0.1, 1e-5, 9.9e-6, 1e15, 1e300, 5e-324, 1.7976931348623157e308, 1e22};
  if (random() % 2 == 0) return kKnown[random() % kKnown.size()];
  return std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 80) - 60);
}

Everything random_config(std::mt19937& random) {
  Everything config;
  auto& [seed, numbers, texts, lists, outer, optimizer, strategy] = config;
  const auto whole = [&] { return static_cast<std::int64_t>(std::uint64_t{random()} << 32U | random()); };
  seed = whole();
  numbers.whole = whole();
  numbers.huge = static_cast<std::uint64_t>(whole());
  if (random() % 2 == 0) numbers.maybe = static_cast<std::int32_t>(whole());
  numbers.real = (random() % 2 == 0 ? -1 : 1) * random_real(random);
  numbers.single = static_cast<float>(std::min(random_real(random), 1e30));
  if (random() % 2 == 0) numbers.limit = 1 + random_real(random);
  texts.truth = random() % 2 == 0;
  if (random() % 2 == 0) texts.doubt = texts.truth;
  texts.text = random_text(random);
  if (random() % 2 == 0) texts.nothing = random_text(random);
  texts.path = random_text(random);
  texts.choice = random() % 2 == 0 ? "true" : "3";
  texts.format = random() % 2 == 0 ? Format::off : Format::bf16;
  texts.pause = std::chrono::milliseconds{static_cast<std::int32_t>(random())};
  lists.betas = {random_real(random), random_real(random)};
  for (auto i = random() % 4; i > 0; --i) lists.texts.push_back(random_text(random));
  if (random() % 2 == 0) lists.truths = std::vector<bool>{true, false};
  lists.rows = {{1, whole()}, {}};
  if (random() % 4 == 0) lists.weights.clear();
  for (auto i = random() % 4; i > 0; --i) lists.names[random_text(random)] = random_text(random);
  if (random() % 3 == 0) optimizer = SgdRule{.learning_rate = random_real(random), .momentum = {.nesterov = true}};
  if (random() % 3 == 0) optimizer = NoRule{};
  strategy.name = "fsdp";
  return config;
}

TEST(PrintedConfig, ReadsEqualAsYaml11AsYaml12AndAsJson) {
  const TemporaryFolder folder;
  std::mt19937 random{7};
  constexpr int kConfigs = 200;
  auto list = nlohmann::json::array();
  for (int i = 0; i < kConfigs; ++i) {
    const auto config = random_config(random);
    const File yaml{print_yaml(config), "yaml"}, json{print_json(config), "json"};
    list.push_back({{"yaml", yaml.text}, {"json", json.text}});
    for (const auto& file : {yaml, json}) {
      Everything read;
      EXPECT_EQ(problems_with(file, read), "");
      EXPECT_EQ(print_yaml(read), yaml.text);
    }
  }
  write(folder.path() / "prints.json", list.dump());
  write(folder.path() / "schema.json", json_schema(table_of<Everything>(), "everything"));
  EXPECT_EQ(run_python("../config/schema_corpus.py", {"prints", folder.path().string()}),
            std::to_string(kConfigs) + " configs agree\n");
}

}  // namespace
}  // namespace ddpxx::schema_test
