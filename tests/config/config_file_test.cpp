#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/config/files/config_file.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/core/error.hpp>

#include "../temporary_folder.hpp"
#include "entries_text.hpp"

namespace ddpxx::config_file_test {
namespace {

using namespace detail;

/// Each test runs in a new current folder, so that messages name files as a user would.
class ConfigFiles : public testing::Test {
 protected:
  ConfigFiles() { std::filesystem::current_path(folder_.path()); }
  ~ConfigFiles() override { std::filesystem::current_path(before_); }

  void write(std::string_view name, std::string_view text) { folder_.file(name, text); }

  /// `NAME: ENTRIES` for each file, in the order in which the files are applied.
  static std::vector<std::string> applied(const std::string& path) {
    std::vector<std::string> lines;
    for (const auto& entries : read_config_files(path, 0))
      lines.push_back(entries.source->name + ": " + entries_text(entries));
    return lines;
  }

  static std::string problems(const std::string& path) {
    std::vector<ConfigProblem> all;
    for (const auto& entries : read_config_files(path, 0))
      all.insert(all.end(), entries.problems.begin(), entries.problems.end());
    return problem_report(all);
  }

  static std::vector<std::string> notices(const std::string& path) {
    std::vector<std::string> lines;
    for (const auto& entries : read_config_files(path, 0))
      for (const auto& notice : entries.notices) lines.push_back(to_text(notice.place) + ": " + notice.text);
    return lines;
  }

  std::string here() const { return std::filesystem::canonical(folder_.path()).string(); }

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
  TemporaryFolder folder_;
};

using Lines = std::vector<std::string>;

TEST_F(ConfigFiles, OfPythonAreLinesOfNamesAndLiterals) {
  write("a.py",
        "# -*- a comment\n\na = 1_000 # steps\nb='it\\'s # here'\nc = \"x\" ;\nd = None\ne = True\n"
        "f = (0.9, .95)\ng = ['a', (1), -2]\nh = 5 * 8*2\ni= -1e-3\nj = 0 * 5\n");
  EXPECT_EQ(applied("a.py"),
            (Lines{"a.py: a@3:1=1_000@3:5 b@4:1=\"it's # here\"@4:3 c@5:1=\"x\"@5:5 d@6:1=none e@7:1=True@7:5 "
                   "f@8:1=[0.9@8:5,.95@8:5] g@9:1=[\"a\"@9:5,1@9:5,-2@9:5] h@10:1=80@10:5 i@11:1=-1e-3@11:4 "
                   "j@12:1=0@12:5"}));
  EXPECT_EQ(problems("a.py"), "");
}

TEST_F(ConfigFiles, OfPythonHaveTuplesByTheirCommas) {
  write("a.py", "a = (200)\nb = ((1, 2))\nc = (1,)\nd = ()\ne = [(1, 2), (3 * 2,), ('x')]\nf = (5 * 8)\n");
  EXPECT_EQ(applied("a.py"), (Lines{"a.py: a@1:1=200@1:5 b@2:1=[1@2:5,2@2:5] c@3:1=[1@3:5] d@4:1=[] "
                                    "e@5:1=[[1@5:5,2@5:5],[6@5:5],\"x\"@5:5] f@6:1=40@6:5"}));
  EXPECT_EQ(problems("a.py"), "");
}

TEST_F(ConfigFiles, OfPythonHoldSoManyValuesAtMost) {
  std::string items = "1";
  for (int i = 1; i < 99'999; ++i) items += ",1";
  write("most.py", "a = [" + items + "]\n\n# the list is one, too\n");
  EXPECT_EQ(problems("most.py"), "");
  for (const auto& more :
       {"a = [" + items + ",1]\n", "a = [" + items + "]\nb = 1\n", "a = [[" + items + "], [" + items + ']'}) {
    write("more.py", more);
    EXPECT_NE(problems("more.py").find(": more than 100000 values\n"), std::string::npos);
    EXPECT_EQ(read_config_file("more.py", 0).problems.size(), 1U);
  }
}

TEST_F(ConfigFiles, OfPythonAreRefusedWherePythonIsNeeded) {
  const auto problem = [&](const char* line) {
    write("a.py", line);
    const auto text = problems("a.py");
    return text.substr(0, text.find(';'));
  };
  for (const char* line :
       {"exec(open('x').read())", " a = 1", "a", "a.b = 1", "1a = 2", "a += 1", "for x in y:", "\"\"\"doc\"\"\""})
    EXPECT_NE(problem(line).find(": is not a line NAME = VALUE"), std::string::npos) << line;
  for (const char* line : {"a = 5 *", "a = 2 ** 3", "a = b", "a = 5 + 3", "a = 0.5 * 2", "a =", "a = 'x' 'y'", "a == 1",
                           "a = 1k", "a = 18446744073709551615 * 2", "a = [b]"})
    EXPECT_NE(problem(line).find(" is not a number, text, True, False, None, tuple or list"), std::string::npos)
        << line;
  EXPECT_EQ(problem("a = [1"), "a.py:1:5: a: this [ is never closed\n    a = [1\n        ^");
  for (const char* line : {"a = 'x\\x62'", "a = ['x\\x62']"})
    EXPECT_NE(problem(line).find(": a: the escape \\x is not read: write the character itself"), std::string::npos)
        << line;
  EXPECT_EQ(problem("a = '\\d\\n'"), "");
  EXPECT_EQ(problem("a = \xFF"), "a.py:1:5: byte 4 is not UTF-8\n    a = \\xff\n        ^");
}

TEST_F(ConfigFiles, AreReadByTheirEnding) {
  write("a.json", "{\"a\": 1}");
  write("a.yaml", "a: 1\n");
  write("a.conf", "a: 1\n");
  EXPECT_EQ(entries_text(read_config_file("a.json", 0)), "a@1:2=1@1:7");
  EXPECT_EQ(entries_text(read_config_file("a.yaml", 0)), "a@1:1=1@1:4");
  EXPECT_EQ(entries_text(read_config_file("a.conf", 3)), "a@1:1=1@1:4");
  EXPECT_EQ(read_config_file("a.conf", 3).source->order, 3U);
  write("b.json", "a: 1\n");
  EXPECT_EQ(problem_report(read_config_file("b.json", 0).problems),
            "b.json:1:1: \"a\" is not a JSON value; a text needs double quotes\n    a: 1\n    ^");
}

TEST_F(ConfigFiles, ThatAreEmptyGetANotice) {
  write("a.yaml", "# nothing\n");
  write("b.json", "{}\n");
  write("c.json", "");
  EXPECT_EQ(notices("a.yaml"), Lines{"a.yaml:1:1: this file says nothing"});
  EXPECT_EQ(notices("b.json"), Lines{"b.json:1:1: this file says nothing"});
  EXPECT_EQ(notices("c.json"), Lines{"c.json:1:1: this file says nothing"});
}

TEST_F(ConfigFiles, ThatCannotBeReadAreNamed) {
  for (const std::string name : {"none.yaml", "none.json"}) {
    try {
      read_config_files(name, 0);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config);
      EXPECT_EQ(error.what(), "cannot open " + name + ": No such file or directory (errno 2)");
    }
  }
  write("huge.json", "");
  std::filesystem::resize_file("huge.json", std::uintmax_t{100} << 20U);
  EXPECT_THROW(read_config_file("huge.json", 0), Error);
}

TEST_F(ConfigFiles, ComeAfterWhatTheyInclude) {
  write("train.yaml", "include: base/all.yaml\nseed: 3\n");
  write("base/all.yaml", "seed: 2\ninclude: [model.json, data.yaml]\n");
  write("base/model.json", "{\"model\": 1}");
  write("base/data.yaml", "data: 1\n");
  EXPECT_EQ(applied("train.yaml"), (Lines{"base/model.json: model@1:2=1@1:11", "base/data.yaml: data@1:1=1@1:7",
                                          "base/all.yaml: seed@1:1=2@1:7", "train.yaml: seed@2:1=3@2:7"}));
  EXPECT_EQ(problems("train.yaml"), "");
  EXPECT_EQ(notices("train.yaml"), Lines{});
  std::size_t order = 5;
  for (const auto& entries : read_config_files("train.yaml", 5)) EXPECT_EQ(entries.source->order, order++);
}

TEST_F(ConfigFiles, AreReadOnceThoughIncludedTwice) {
  write("train.yaml", "include: [a.yaml, b.yaml, ./a.yaml]\n");
  write("a.yaml", "include: base.yaml\na: 1\n");
  write("b.yaml", "include: link.yaml\nb: 1\n");
  write("base.yaml", "c: 1\n");
  std::filesystem::create_symlink("base.yaml", "link.yaml");
  EXPECT_EQ(applied("train.yaml"),
            (Lines{"base.yaml: c@1:1=1@1:4", "a.yaml: a@2:1=1@2:4", "b.yaml: b@2:1=1@2:4", "train.yaml: "}));
}

TEST_F(ConfigFiles, ThatIncludeEachOtherShowTheChain) {
  write("train.yaml", "include: a.yaml\n");
  write("a.yaml", "include: sub/b.json\n");
  write("sub/b.json", "{\"include\": [\"c.yaml\", \"../a.yaml\"]}");
  write("sub/c.yaml", "include: c.yaml\n");
  EXPECT_EQ(problems("train.yaml"),
            "sub/c.yaml:1:10: includes itself: sub/c.yaml -> sub/c.yaml\n    include: c.yaml\n             ^\n"
            "sub/b.json:1:24: includes itself: a.yaml -> sub/b.json -> a.yaml\n"
            "    {\"include\": [\"c.yaml\", \"../a.yaml\"]}\n                           ^");
}

TEST_F(ConfigFiles, IncludeEachOtherThroughSixteenLevels) {
  for (int i = 0; i < 100; ++i)
    write("f" + std::to_string(i) + ".yaml", "include: f" + std::to_string(i + 1) + ".yaml\n");
  write("f100.yaml", "x: 1\n");
  EXPECT_EQ(applied("f84.yaml").size(), 17U);
  EXPECT_EQ(problems("f84.yaml"), "");
  EXPECT_EQ(problems("f83.yaml"),
            "f99.yaml:1:10: more than 16 levels of files that include files\n    include: f100.yaml\n             ^");
  EXPECT_EQ(applied("f0.yaml").size(), 17U);
}

TEST_F(ConfigFiles, NameTheIncludeThatCannotBeRead) {
  write("train.yaml", "include:\n  - none.yaml\n  - folder\n  - ok.yaml\n  - ''\n  - [x]\n  - null\n");
  write("ok.yaml", "a: 1\n");
  std::filesystem::create_directory("folder");
  EXPECT_EQ(problems("train.yaml"),
            "train.yaml:2:3: include takes names of files\n      - none.yaml\n      ^\n"
            "train.yaml:2:5: cannot open none.yaml: No such file or directory (errno 2)\n      - none.yaml\n        ^\n"
            "train.yaml:3:5: cannot read folder: Is a directory\n      - folder\n        ^\n"
            "train.yaml:5:5: the name of a file is missing\n      - ''\n        ^\n"
            "train.yaml:6:5: include takes names of files\n      - [x]\n        ^");
  EXPECT_EQ(applied("train.yaml"), (Lines{"ok.yaml: a@1:1=1@1:4", "train.yaml: "}));
  for (const char* wrong : {"include:\n", "include: {a: b}\n", "include: null\n", "include: {}\n"}) {
    write("wrong.yaml", wrong);
    EXPECT_NE(problems("wrong.yaml").find("include takes the name of a file, or a list of names"), std::string::npos)
        << wrong;
  }
}

TEST_F(ConfigFiles, SayWhereAnIncludeFromElsewhereLies) {
  write("conf/train.yaml", "include: [../base.yaml, link.yaml, sub/../near.yaml, " + here() + "/all.yaml]\n");
  for (const char* name : {"base.yaml", "far.yaml", "conf/near.yaml", "all.yaml"}) write(name, "a: 1\n");
  std::filesystem::create_symlink("../far.yaml", "conf/link.yaml");
  EXPECT_EQ(notices("conf/train.yaml"),
            (Lines{"conf/train.yaml:1:11: \"../base.yaml\" is " + here() + "/base.yaml",
                   "conf/train.yaml:1:25: \"link.yaml\" is " + here() + "/far.yaml",
                   "conf/train.yaml:1:36: \"sub/../near.yaml\" is " + here() + "/conf/near.yaml",
                   "conf/train.yaml:1:54: \"" + here() + "/all.yaml\" is " + here() + "/all.yaml"}));
  EXPECT_EQ(problems("conf/train.yaml"), "");
}

}  // namespace
}  // namespace ddpxx::config_file_test
