// Programs that start themselves once for each rank.
#include <algorithm>
#include <csignal>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/child.hpp>
#include <ddpxx/launch/spawn.hpp>

#include "../error_of.hpp"
#include "../temporary_folder.hpp"
#include "../without_threads.hpp"
#include "started_program.hpp"

namespace spawn_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Words = std::vector<std::string>;

StartedProgram start(const Words& arguments, const Words& variables = {}) {
  Words command = {"/usr/bin/env", "-u", "RANK", "-u", "WORLD_SIZE", "-u", "LOCAL_RANK"};
  command.insert(command.end(), variables.begin(), variables.end());
  command.push_back(program_folder() + "/spawning_program");
  command.insert(command.end(), arguments.begin(), arguments.end());
  return StartedProgram{std::move(command)};
}

Words sorted_lines(const std::string& text) {
  std::istringstream stream{text};
  Words lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(Spawn, StartsTheProgramOnceForEachRankWithItsOtherArguments) {
  const auto ended = start({"a=1", "spawn=3", "b c", "--", "spawn=7"}).wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(sorted_lines(ended.out),
            (Words{"[rank0]: rank 0 of 3: a=1 b c -- spawn=7", "[rank1]: rank 1 of 3: a=1 b c -- spawn=7",
                   "[rank2]: rank 2 of 3: a=1 b c -- spawn=7"}));
}

TEST(Spawn, ReportsAFailureAsDdpxxRunDoes) {
  const auto ended = start({"spawn=2", "fail"}).wait(),
             by_ddpxx_run =
                 ddpxx_run({"--standalone", "--nproc-per-node=2", program_folder() + "/spawning_program", "fail"});
  for (const auto& one : {ended, by_ddpxx_run}) {
    EXPECT_EQ(one.code, 4);
    EXPECT_THAT(one.err,
                AllOf(HasSubstr("[rank1]: program: rank 1: error: no space\n"), HasSubstr("/spawning_program FAILED\n"),
                      HasSubstr("  error     : Error: no space\n"), HasSubstr("): ended by ddpxx-run with SIGTERM")));
  }
}

TEST(Spawn, PassesSignalsOn) {
  const TemporaryFolder folder;
  const auto out = (folder / "out").string();
  StartedProgram run{
      {"/bin/sh", "-c",
       "unset RANK WORLD_SIZE LOCAL_RANK; exec " + program_folder() + "/spawning_program spawn=2 wait >" + out}};
  run.wait_for_lines(out, 2);
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait().code, 128 + SIGTERM);
}

TEST(Spawn, RefusesWhatMakesNoSenseInOneLine) {
  const auto refused = [](const Words& arguments, const std::string& text, const Words& variables = {}) {
    const auto ended = start(arguments, variables).wait();
    EXPECT_EQ(ended.code, 2);
    EXPECT_EQ(ended.out, "") << "the body must not run";
    EXPECT_THAT(ended.err, AllOf(HasSubstr(text), testing::EndsWith("\n")));
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1);
  };
  refused({"spawn=0"}, "spawn: \"0\" is not a whole number from 1 to 4096");
  refused({"spawn="}, "spawn: \"\" is not a whole number");
  refused({"spawn=two"}, "spawn: \"two\" is not a whole number");
  refused({"--spawn"}, "--spawn needs a value: the number of ranks");
  refused({"--spawn", "--"}, "--spawn needs a value: the number of ranks");
  refused({"--spawn", "a=1"}, "spawn: \"a=1\" is not a whole number");
  refused({"spawn=2", "spawn=3"}, "spawn=2 and spawn=3: give the number of ranks once");
  refused({"spawn=2", "--spawn", "3"}, "spawn=2 and --spawn: give the number of ranks once");
  refused({"spawn=2", "-m", "lr=1,2"}, "spawn=2 does not go with the sweep of -m");
  refused({"spawn=4"}, "spawn=4 and the environment variable RANK=1", {"RANK=1"});
  refused({"spawn=4"}, "spawn=4 and the environment variable WORLD_SIZE=2", {"WORLD_SIZE=2"});
}

TEST(Spawn, IsRefusedInARankOfAnotherLauncher) {
  const auto ended = ddpxx_run({"--nproc-per-node=2", program_folder() + "/spawning_program", "spawn=2"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("spawn=2 and the environment variable RANK="));
}

TEST(Spawn, IsFoundAmongTheArgumentsBeforeTheirEnd) {
  using ddpxx::detail::read_spawn;
  EXPECT_FALSE(read_spawn({}));
  EXPECT_FALSE(read_spawn({"respawn=2", "spawn", "--", "spawn=2"}));
  for (const Words& written : {Words{"spawn=auto"}, Words{"--spawn=auto"}, Words{"--spawn", "auto"}}) {
    Words arguments{"a"};
    arguments.insert(arguments.end(), written.begin(), written.end());
    arguments.insert(arguments.end(), {"b", "--", "c"});
    const auto request = read_spawn(arguments);
    ASSERT_TRUE(request) << written.front();
    EXPECT_EQ(request->value, "auto");
    EXPECT_EQ(request->arguments, (Words{"a", "b", "--", "c"}));
  }
}

TEST(Child, NamesTheLimitOfTheSystem) {
  without_threads([] {
    const auto start = [] { const ddpxx::Child child{{.path = "/bin/true", .arguments = {"true"}}}; };
    EXPECT_EQ(ddpxx::code_of(start), ddpxx::Errc::peer);
    EXPECT_EQ(ddpxx::error_of(start), "cannot start /bin/true: Resource temporarily unavailable (limit: ulimit -u)");
  });
}

}  // namespace
}  // namespace spawn_test
