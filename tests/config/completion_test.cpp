// The completion scripts offer what they should in each shell; each script runs in its own shell.
#include <array>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/config/command.hpp>
#include <ddpxx/config/show/completion.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>

#include "../temporary_folder.hpp"
#include "everything.hpp"

namespace ddpxx::completion_test {
namespace {

using namespace detail;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string output_of(const std::string& command) {
  std::FILE* output = ::popen((command + " 2>&1").c_str(), "r");
  if (output == nullptr) throw std::runtime_error{"cannot start: " + command};
  std::string text;
  std::array<char, 4096> part{};
  while (const auto size = std::fread(part.data(), 1, part.size(), output)) text.append(part.data(), size);
  if (::pclose(output) != 0) text += "(failed)";
  return text;
}

const std::vector<Command> kCommands{{"generate", "makes a text"}, {"plan", "what's needed"}};

std::string script(std::string_view shell) {
  return completion_script(table_of<Everything>(), shell, "train", kCommands);
}

class Completion : public testing::Test {
 protected:
  /// What the shell offers, one word on each line, in a folder with some files.
  std::string offered(const std::string& shell, const std::string& commands) const {
    folder_.file("gpt.yaml", "");
    folder_.file("gpt.json", "");
    folder_.file("gpt.txt", "");
    folder_.file("grids/x", "");
    const auto path = folder_.file("script", script(shell));
    const auto run = folder_.file("run", commands);
    const auto plain = shell == "zsh" ? " -f " : shell == "fish" ? " --no-config " : " --norc ";
    return output_of("cd '" + folder_.path().string() + "' && " + shell + plain + run);
  }
  /// Completes the last element of the bash array `words`.
  std::string in_bash(const std::string& words) const {
    return offered("bash",
                   "HOME=$PWD\nsource ./script\n[[ $(complete -p train) == *' -F '* ]] || echo not registered\n"
                   "COMP_WORDS=(train " +
                       words +
                       ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_complete_train\n"
                       "((${#COMPREPLY[@]})) && printf '%s\\n' \"${COMPREPLY[@]}\"\nexit 0\n");
  }
  /// zsh defines compadd and compset only while a command line is edited; these replacements print their arguments.
  std::string in_zsh(const std::string& words) const {
    return offered("zsh",
                   "compdef() { echo \"registered $*\" }\ncompadd() { print -rl -- \"$@\" }\ncompset() { }\n"
                   "_files() { echo \"files $*\" }\nsource ./script\nwords=(train " +
                       words + ")\nCURRENT=$#words\n_complete_train\n");
  }
  std::string in_fish(const std::string& line) const {
    return offered("fish", "source ./script\ncomplete -C 'train " + line + "'\n");
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(Completion, OfBashOffersKeysValuesAndOptions) {
  EXPECT_EQ(in_bash("numbers.s"), "numbers.share=\nnumbers.single=\nnumbers.seconds=\n");
  EXPECT_EQ(in_bash("texts.format ="), "fp32\nbf16\noff\n");
  EXPECT_EQ(in_bash("texts.format = b"), "bf16\n");
  EXPECT_EQ(in_bash("texts.format=b"), "texts.format=bf16\n");
  EXPECT_EQ(in_bash("--texts.truth = ''"), "true\nfalse\n");
  EXPECT_EQ(in_bash("texts.doubt = n"), "null\n");
  EXPECT_EQ(in_bash("optimizer = ''"), "adam\nsgd\nnone\n");
  EXPECT_EQ(in_bash("strategy.name = f"), "fsdp\n");
  EXPECT_EQ(in_bash("texts.text = ''"), "");
  EXPECT_EQ(in_bash("lists.w"), "lists.wholes=\nlists.weights.\n");
  EXPECT_EQ(in_bash("--b"), "--blame\n");
  EXPECT_EQ(in_bash("seed = 3 --comp"), "--completion\n");
  EXPECT_EQ(in_bash("--completion f"), "fish\n");
  EXPECT_EQ(in_bash("--help outer.i"), "outer.inner.depth\nouter.inner\n");
  EXPECT_EQ(in_bash("--errors = j"), "json\n");
}

TEST_F(Completion, OfBashOffersConfigFiles) {
  EXPECT_EQ(in_bash("-cn g"), "gpt.yaml\ngpt.json\ngrids/\n");
  EXPECT_EQ(in_bash("--config-name = gpt.y"), "gpt.yaml\n");
  EXPECT_EQ(in_bash("--config-path g"), "grids/\n");
  EXPECT_EQ(in_bash("seed = 3 gp"), "gpt.yaml\ngpt.json\n") << "a config file is an argument of its own";
  EXPECT_EQ(in_bash("gr"), "grids/\n");
  EXPECT_EQ(in_bash("'~/gp'"), "~/gpt.yaml\n~/gpt.json\n") << "a quoted ~ is not a home folder";
}

TEST_F(Completion, OfBashOffersCommandsAndFiles) {
  EXPECT_EQ(in_bash("ge"), "generate\n");
  EXPECT_EQ(in_bash("ini"), "init\n");
  EXPECT_EQ(in_bash("seed = 3 ge"), "") << "a command is the first word";
  EXPECT_THAT(script("bash"), HasSubstr("\ncomplete -o bashdefault -o default -F _complete_train train\n"))
      << "bash itself completes the names of files where the function offers nothing";
  EXPECT_EQ(in_bash("texts.path=gpt.t"), "texts.path=gpt.txt\n");
}

TEST_F(Completion, OfBashQuotesForTheShell) {
  struct Odd {
    std::string word = "a b";
    static constexpr auto describe() { return fields(field<&Odd::word>("One of", choices("it's", "a b", "$(date)"))); }
  };
  EXPECT_THAT(
      completion_script(table_of<Odd>(), "bash", "my-train"),
      AllOf(HasSubstr("_complete_my_train() {"), HasSubstr(R"('word') candidates=('it'\''s' 'a b' '$(date)') ;;)")));
  EXPECT_THAT(completion_script(table_of<Odd>(), "fish", "x"), HasSubstr(R"('it\'s' 'a b' '$(date)')"));
}

TEST_F(Completion, OfZshOffersKeysValuesAndOptions) {
  EXPECT_THAT(in_zsh("nu"), AllOf(StartsWith("registered _complete_train train\n-S\n\n--\nseed=\n"),
                                  HasSubstr("\nnumbers.share=\n"), HasSubstr("\n--blame\n")));
  EXPECT_EQ(in_zsh("texts.format="), "registered _complete_train train\n--\nfp32\nbf16\noff\n");
  EXPECT_EQ(in_zsh("--optimizer=s"), "registered _complete_train train\n--\nadam\nsgd\nnone\n");
  EXPECT_EQ(in_zsh("-cn g"), "registered _complete_train train\nfiles -g *.(yaml|yml|json|py)\n");
  EXPECT_EQ(in_zsh("texts.text=x"), "registered _complete_train train\nfiles \n");
}

TEST_F(Completion, OfZshOffersCommandsAndFiles) {
  EXPECT_THAT(in_zsh("ge"), HasSubstr("\n--\ngenerate\nplan\ninit\nfiles \n"));
  EXPECT_THAT(in_zsh("seed=3 ge"), AllOf(Not(HasSubstr("generate")), HasSubstr("\nfiles \n")));
}

TEST_F(Completion, OfFishOffersKeysValuesAndOptions) {
  EXPECT_EQ(in_fish("numbers.sh"), "numbers.share=\tA part of it\n");
  EXPECT_EQ(in_fish("texts.format="), "texts.format=bf16\ntexts.format=fp32\ntexts.format=off\n");
  EXPECT_EQ(in_fish("--optimizer=s"), "--optimizer=sgd\n");
  EXPECT_EQ(in_fish("--bl"), "--blame\n");
  EXPECT_EQ(in_fish("-cn gp"), "gpt.json\ngpt.yaml\n");
  EXPECT_EQ(in_fish("--completion f"), "fish\n");
  EXPECT_EQ(in_fish("texts.text=x"), "");
}

TEST_F(Completion, OfFishOffersCommandsAndFiles) {
  EXPECT_EQ(in_fish("ge"), "generate\tmakes a text\n");
  EXPECT_EQ(in_fish("pl"), "plan\twhat's needed\n");
  EXPECT_THAT(in_fish("seed=3 pla"), Not(HasSubstr("plan\t")));
  EXPECT_EQ(in_fish("gp"), "gpt.json\ngpt.txt\ngpt.yaml\n");
  EXPECT_EQ(in_fish("texts.path=gpt.t"), "texts.path=gpt.txt\n");
  EXPECT_EQ(in_fish("texts.path=gri"), "texts.path=grids/\n");
}

TEST_F(Completion, RefusesAnUnknownShell) {
  try {
    completion_script(table_of<Everything>(), "tcsh", "train");
    FAIL() << "tcsh was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"tcsh\" is not known (allowed: bash, zsh or fish)"));
  }
}

}  // namespace
}  // namespace ddpxx::completion_test
