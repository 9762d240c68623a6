// The file that `init` writes sets all defaults when it is read back, and it shows every key.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/config/files/yaml.hpp>
#include <ddpxx/config/fill/config_builder.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/print.hpp>
#include <ddpxx/config/show/init.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/utf8.hpp>

#include "everything.hpp"

namespace ddpxx::init_test {
namespace {

using namespace detail;
using testing::HasSubstr;

std::string starter() { return starter_yaml(table_of<Everything>(), "everything.schema.json"); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    if (c == '\n')
      lines.emplace_back();
    else
      lines.back() += c;
  }
  return lines;
}

/// Returns the config as YAML, or the problems.
std::string read_back(const std::string& yaml) {
  Everything config;
  ConfigBuilder builder{table_of<Everything>(), &config};
  builder.apply(read_yaml_text(yaml, "t.yaml", 0));
  builder.finish();
  return builder.problems().empty() ? print_yaml(config) : problem_report(builder.problems());
}

TEST(StarterYaml, ReadsBackToTheDefaults) { EXPECT_EQ(read_back(starter()), print_yaml(Everything{})); }

TEST(StarterYaml, TellsEditorsTheSchemaInItsFirstLine) {
  EXPECT_EQ(lines_of(starter())[0], "# yaml-language-server: $schema=everything.schema.json");
}

TEST(StarterYaml, ExplainsEachKeyAboveIt) {
  EXPECT_THAT(starter(), HasSubstr("\n# Numbers of all kinds\nnumbers:\n"));
  EXPECT_THAT(starter(), HasSubstr("  # How many (a whole number, at least 1, in steps)\n  count: 8\n"));
  EXPECT_THAT(starter(), HasSubstr("  # (true or false or null)\n  doubt: null\n"));
}

TEST(StarterYaml, HasEveryKeyLiveOrAsAComment) {
  for (const auto& row : table_of<Everything>().rows)
    EXPECT_THAT(starter(), HasSubstr(std::string{name_of(row.path)} + ": ")) << row.path;
}

TEST(StarterYaml, BreaksLongExplanations) {
  for (const auto& line : lines_of(starter())) EXPECT_LE(count_characters(line), 120U) << line;
  EXPECT_THAT(starter(), HasSubstr("  # Whatever you like; this help is so long"));
}

TEST(StarterYaml, LeavesSecretsToVariables) {
  EXPECT_THAT(starter(), HasSubstr("  # token: ${oc.env:NAME}\n"));
  EXPECT_THAT(starter(), HasSubstr("name a variable that holds it"));
}

TEST(StarterYaml, ShowsOtherAlternativesAsComments) {
  EXPECT_THAT(starter(), HasSubstr("  name: \"adam\"\n"));
  EXPECT_THAT(starter(), HasSubstr("  # with name: sgd\n"));
  // A block that is commented out becomes valid YAML when its `# ` is removed.
  std::string awake;
  bool is_block = false;
  for (const auto& line : lines_of(starter())) {
    if (line == "strategy:") is_block = false;
    if (is_block && line.starts_with("  # ")) awake += "  " + line.substr(4) + '\n';
    if (line == "  # with name: sgd") is_block = true;
  }
  EXPECT_EQ(read_back("optimizer:\n  name: sgd\n" + awake),
            read_back("optimizer: {name: sgd, learning_rate: 0.1, momentum: {value: 0.9, nesterov: false}}"))
      << awake;
  EXPECT_THAT(awake, HasSubstr("  momentum:\n"));
}

}  // namespace
}  // namespace ddpxx::init_test
