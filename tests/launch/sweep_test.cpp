// Tests of whole sweeps: real processes, run by a shell.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/stop_signals.hpp>
#include <ddpxx/core/sweep.hpp>
#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/parse_launch.hpp>
#include <ddpxx/launch/sweep/slurm_array.hpp>
#include <ddpxx/launch/sweep/sweep_folder.hpp>
#include <ddpxx/launch/sweep/sweep_table.hpp>
#include <ddpxx/launch/sweep_command.hpp>
#include <ddpxx/launch/sweep_runner.hpp>

#include "../temporary_folder.hpp"
#include "started_program.hpp"

namespace sweep_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// A folder with programs for jobs, and sweeps over them by `ddpxx-run --standalone PROGRAM`.
class SweepRun : public testing::Test {
 protected:
  std::string program(const std::string& name, const std::string& body) const {
    const auto path = folder_.file(name, "#!/bin/sh\n" + body + "\n");
    ::chmod(path.c_str(), 0755);
    return path;
  }

  std::vector<std::string> words(const std::string& path, std::vector<std::string> more) const {
    std::vector<std::string> all{"--standalone", path, "-m", "--sweep-dir", sweep_.string()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Ended run(const std::string& path, std::vector<std::string> more) const { return ddpxx_run(words(path, more)); }

  std::string text(const std::string& name) const { return StartedProgram::text_of(sweep_ / name); }
  bool has(const std::string& name) const { return std::filesystem::exists(sweep_ / name); }

  TemporaryFolder folder_;
  std::filesystem::path sweep_ = folder_ / "sweep";
};

/// The table's rows with one space between their columns.
std::vector<std::string> rows_of(const std::string& table) {
  std::istringstream stream{table};
  std::vector<std::string> rows;
  for (std::string line; std::getline(stream, line);) {
    std::istringstream columns{line};
    std::string row;
    for (std::string word; columns >> word;) row += (row.empty() ? "" : " ") + word;
    rows.push_back(row);
  }
  return rows;
}

TEST_F(SweepRun, SaysWhyItsFolderCannotBeMade) {
  const auto job = program("job", "exit 0");
  std::filesystem::create_symlink("nowhere", folder_ / "multirun");
  const auto in_folder = [&](const std::string& more) {
    return StartedProgram{{"/bin/sh", "-c",
                           "cd " + folder_.path().string() + " && exec " + program_folder() +
                               "/ddpxx-run --standalone " + job + " -m a=1,2" + more}}
        .wait();
  };
  const auto usual = in_folder(""), wanted = in_folder(" --sweep-dir job/below");
  EXPECT_EQ(usual.code, 4);
  EXPECT_EQ(usual.err, "ddpxx-run: cannot make the sweep's folder multirun: File exists\n");
  EXPECT_EQ(wanted.code, 4);
  EXPECT_EQ(wanted.err, "ddpxx-run: cannot make the sweep's folder job/below: Not a directory\n");
}

TEST_F(SweepRun, GivesEachJobItsArgumentsFolderAndLog) {
  const auto job = program("job", "echo \"$RANK/$WORLD_SIZE $* $DDPXX_RUN_FOLDER\"; echo bad >&2");
  const auto ended = run(job, {"a=1,2", "it's", "b=x y"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(text("1/log"), "0/1 a=2 it's b=x y " + (sweep_ / "1").string() + "\nbad\n");
  EXPECT_EQ(text("1/overrides.yaml"), "- 'a=2'\n- 'it''s'\n- 'b=x y'\n");
  EXPECT_THAT(text("1/status"), StartsWith("exit_code: 0\nseconds: "));
  EXPECT_THAT(ended.err, HasSubstr("sweep: job 0 starts: a=1"));
  EXPECT_EQ(rows_of(ended.out).size(), 3U);
}

TEST_F(SweepRun, GivesEachJobAWorldOfItsOwn) {
  const auto job = program("job", "test $RANK = 1 || echo $WORLD_SIZE $MASTER_PORT");
  const auto ended =
      ddpxx_run({"--nproc-per-node=2", "--master-port=29555", job, "-m", "a=1,2", "--sweep-dir=" + sweep_.string()});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(text("0/log"), StartsWith("[rank0]: 2 "));
  EXPECT_NE(text("0/log"), text("1/log"));
  EXPECT_THAT(text("1/log"), Not(HasSubstr("29555")));
}

TEST_F(SweepRun, WritesNoSecretsAndCanBeResumed) {
  const auto job = program("job", "echo $*");
  const auto first = run(job, {"a=1,2", "hub.token=abc"});
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(text("1/log"), "a=2 hub.token=abc\n");
  EXPECT_EQ(text("1/overrides.yaml"), "- 'a=2'\n- 'hub.token=***'\n");
  const auto again = run(job, {"a=1,2", "hub.token=def"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("job 1 was done before"));
  const auto dry = run(job, {"a=1,2", "hub.token=abc", "--dry-run"});
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("a=2 'hub.token=***'"));
  EXPECT_THAT(dry.out, Not(HasSubstr("abc")));
}

TEST_F(SweepRun, TellsJobsApartThoughTheirKeySoundsSecret) {
  const auto job = program("job", "echo $*");
  EXPECT_EQ(run(job, {"pad_token=0,1"}).code, 0);
  EXPECT_EQ(text("1/overrides.yaml"), "- 'pad_token=1'\n");
  const auto others = run(job, {"pad_token=2,3"});
  EXPECT_EQ(others.code, 2);
  EXPECT_THAT(others.err, HasSubstr((sweep_ / "0").string() + " belongs to another sweep"));
}

TEST_F(SweepRun, GoesOnAfterAFailedJobAndEndsWithTheFirstOnesCode) {
  const auto job = program("job", "case $1 in a=1) exit 3;; a=2) kill -9 $$;; esac");
  const auto ended = run(job, {"a=0,1,2,3"});
  EXPECT_EQ(ended.code, 3);
  EXPECT_THAT(text("1/status"), StartsWith("exit_code: 3\n"));
  EXPECT_THAT(text("2/status"), StartsWith("exit_code: 137\n"));
  EXPECT_THAT(text("3/status"), StartsWith("exit_code: 0\n"));
  EXPECT_THAT(ended.err, HasSubstr("see " + (sweep_ / "1/log").string()));
}

TEST_F(SweepRun, RunsAgainOnlyWhatHasNotEndedWell) {
  const auto job = program("job", "echo ran; case $1 in a=1) test -e " + (folder_ / "mended").string() + ";; esac");
  EXPECT_EQ(run(job, {"a=0,1"}).code, 1);
  folder_.file("mended", "");
  const auto again = run(job, {"a=0,1"});
  EXPECT_EQ(again.code, 0);
  EXPECT_EQ(text("0/log"), "ran\n");
  EXPECT_EQ(std::ranges::count(text("1/log"), '\n') > 1, true);
  EXPECT_THAT(again.err, HasSubstr("job 0 was done before"));
  EXPECT_EQ(rows_of(again.out).size(), 3U) << "the table has the jobs of both runs";
}

TEST_F(SweepRun, RefusesTheFolderOfAnotherSweep) {
  EXPECT_EQ(run("/bin/true", {"a=1,2"}).code, 0);
  const auto other = run("/bin/true", {"a=1,3"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr((sweep_ / "1").string() + " belongs to another sweep"));
  EXPECT_EQ(text("1/overrides.yaml"), "- 'a=2'\n");
}

TEST_F(SweepRun, RunsAsManyAtOnceAsItIsTold) {
  // Each job waits until the other one has started.
  const auto job =
      program("job", "touch " + (folder_ / "seen_").string() + "$1; i=0; while [ $(ls " + folder_.path().string() +
                         " | grep -c seen_) -lt 2 ]; do i=$((i+1)); [ $i -lt 500 ] || exit 9; sleep 0.01; done");
  EXPECT_EQ(run(job, {"a=1,2", "--jobs", "2"}).code, 0);
}

TEST_F(SweepRun, LetsTheRunningJobsEndAfterOneWhoseFilesCannotBeWritten) {
  const auto job = program("job", "case $1 in a=2) rm -r $DDPXX_RUN_FOLDER;; *) sleep 0.5; echo whole;; esac");
  const auto rows_after = [&](const std::string& where) {
    const auto ended = run(job, {"a=1,2,3", "--jobs=2"});
    EXPECT_EQ(ended.code, 4) << where;
    EXPECT_THAT(ended.err, HasSubstr("sweep: job 1 has failed: ")) << where;
    EXPECT_EQ(text("0/log"), "whole\n") << where;
    EXPECT_THAT(text("0/status"), StartsWith("exit_code: 0\n")) << where;
    EXPECT_FALSE(has("2")) << where;
    return rows_of(ended.out);
  };
  const auto gone = rows_after("before the status is written");
  EXPECT_THAT(gone, testing::Contains(StartsWith("1 a=2 4 ")));
  EXPECT_THAT(gone, testing::Contains("2 a=3 - - -"));
  std::filesystem::remove_all(sweep_);
  folder_.file("sweep/1", "a file in the place of the folder of job 1");
  EXPECT_THAT(rows_after("before the job is started"), testing::Contains(StartsWith("1 a=2 4 ")));
}

TEST_F(SweepRun, RefusesAFolderInWhichASweepRuns) {
  const auto marks = folder_ / "marks";
  const auto job = program("job", "echo started >>" + marks.string() + "; exec sleep 600");
  StartedProgram first = start_ddpxx_run(words(job, {"a=1"}));
  first.wait_for_lines(marks, 1);
  const auto second = run(job, {"a=1"});
  EXPECT_EQ(second.code, 2);
  EXPECT_THAT(second.err, HasSubstr("already"));
}

TEST_F(SweepRun, HandsSignalsToTheJobsAndWaitsForThem) {
  const auto marks = folder_ / "marks";
  const auto job =
      program("job", "trap 'echo heard >>" + marks.string() + "; sleep 0.3; exit 75' TERM; echo started >>" +
                         marks.string() + "; while :; do sleep 0.02; done");
  StartedProgram sweep = start_ddpxx_run(words(job, {"a=1,2,3", "--jobs=2"}));
  sweep.wait_for_lines(marks, 2);
  sweep.signal(SIGTERM);
  const auto ended = sweep.wait();
  EXPECT_EQ(ended.code, 75) << ended.err;
  EXPECT_EQ(StartedProgram::text_of(marks), "started\nstarted\nheard\nheard\n");
  EXPECT_THAT(text("1/status"), StartsWith("exit_code: 75\n"));
  EXPECT_FALSE(has("2")) << "no job starts after the signal";
  EXPECT_THAT(rows_of(ended.out), testing::Contains("2 a=3 - - -"));
}

TEST_F(SweepRun, EndsByTheSignalThatEndedItsJob) {
  const auto marks = folder_ / "marks";
  const auto job = program("job", "echo started >>" + marks.string() + "; exec sleep 600");
  StartedProgram sweep = start_ddpxx_run(words(job, {"a=1,2"}));
  sweep.wait_for_lines(marks, 1);
  sweep.signal(SIGINT);
  EXPECT_EQ(sweep.wait().code, 128 + SIGINT);
}

TEST_F(SweepRun, EndsByAFailureRatherThanByTheSignal) {
  const auto marks = folder_ / "marks";
  const auto job = program(
      "job", "test $1 = a=1 || trap 'exit 3' INT; echo started >>" + marks.string() + "; while :; do sleep 0.02; done");
  StartedProgram sweep = start_ddpxx_run(words(job, {"a=1,2", "--jobs=2"}));
  sweep.wait_for_lines(marks, 2);
  sweep.signal(SIGINT);
  EXPECT_EQ(sweep.wait().code, 3);
}

TEST_F(SweepRun, KillsOnASecondInterrupt) {
  const auto marks = folder_ / "marks";
  const auto job = program("job", "trap 'echo heard >>" + marks.string() + "' INT; echo started >>" + marks.string() +
                                      "; while :; do sleep 0.02; done");
  StartedProgram sweep = start_ddpxx_run(words(job, {"a=1"}));
  sweep.wait_for_lines(marks, 1);
  sweep.signal(SIGINT);
  sweep.wait_for_lines(marks, 2);
  std::this_thread::sleep_for(ddpxx::kSameRequest);
  sweep.signal(SIGINT);
  EXPECT_EQ(sweep.wait().code, 128 + SIGINT);
  EXPECT_THAT(text("0/status"), StartsWith("exit_code: 137\n"));
}

TEST_F(SweepRun, LetsTheJobsSaveAtTheFirstInterruptAfterAnotherSignal) {
  const auto marks = folder_ / "marks";
  const auto job = program("job", "trap 'echo heard >>" + marks.string() + "' TERM; trap : INT; echo started >>" +
                                      marks.string() + "; while :; do sleep 0.02; done");
  StartedProgram sweep = start_ddpxx_run(words(job, {"a=1"}));
  sweep.wait_for_lines(marks, 1);
  sweep.signal(SIGTERM);
  sweep.wait_for_lines(marks, 2);
  std::this_thread::sleep_for(ddpxx::kSameRequest);
  sweep.signal(SIGINT);
  std::this_thread::sleep_for(ddpxx::kSameRequest);
  EXPECT_FALSE(sweep.has_ended());
  EXPECT_EQ(sweep.wait_while_signalling(SIGINT).code, 128 + SIGINT);
  EXPECT_THAT(text("0/status"), StartsWith("exit_code: 137\n"));
}

TEST_F(SweepRun, StartsNoJobAfterOneThatStoppedOnAPassedSignal) {
  const auto marks = folder_ / "marks";
  const auto job =
      program("job", "trap 'exit 75' USR1; echo started >>" + marks.string() + "; while :; do sleep 0.02; done");
  StartedProgram sweep = start_ddpxx_run(words(job, {"a=1,2"}));
  sweep.wait_for_lines(marks, 1);
  sweep.signal(SIGUSR1);
  EXPECT_EQ(sweep.wait().code, 75);
  EXPECT_FALSE(has("1"));
}

TEST_F(SweepRun, StartsNoJobAfterOneThatAPassedSignalHasEnded) {
  const auto marks = folder_ / "marks";
  const auto job = program("job", "echo started >>" + marks.string() + "; exec sleep 600");
  StartedProgram sweep = start_ddpxx_run(words(job, {"a=1,2"}));
  sweep.wait_for_lines(marks, 1);
  sweep.signal(SIGUSR1);
  EXPECT_EQ(sweep.wait().code, 128 + SIGUSR1);
  EXPECT_FALSE(has("1"));
}

TEST_F(SweepRun, PutsTheBestMetricFirst) {
  const auto job = program("job",
                           "case $1 in a=1) v=2.5;; a=2) v=0.5;; a=3) v=0.1;; esac\n"
                           "echo '{\"step\":1,\"loss\":0.0,\"val_loss\":9}' >$DDPXX_RUN_FOLDER/metrics.jsonl\n"
                           "echo '{\"step\":2,\"val_loss\":'$v'}' >>$DDPXX_RUN_FOLDER/metrics.jsonl\n"
                           "printf '{\"step\":3,\"val_loss\":0.0' >>$DDPXX_RUN_FOLDER/metrics.jsonl\n"
                           "test $1 != a=3");
  const auto table = rows_of(run(job, {"a=1,2,3"}).out);
  ASSERT_EQ(table.size(), 4U);
  EXPECT_EQ(table[0], "job arguments exit seconds val_loss");
  EXPECT_THAT(table[1], testing::MatchesRegex("1 a=2 0 [0-9.]+ 0.5 best"));
  EXPECT_THAT(table[2], testing::MatchesRegex("0 a=1 0 [0-9.]+ 2.5"));
  EXPECT_THAT(table[3], testing::MatchesRegex("2 a=3 1 [0-9.]+ 0.1")) << "a failed job is not the best";
  EXPECT_THAT(rows_of(run(job, {"a=1,2,3", "--metric", "-val_loss"}).out)[1], testing::EndsWith("2.5 best"));
  EXPECT_THAT(rows_of(run(job, {"a=1,2,3", "--metric=loss"}).out)[1], testing::EndsWith(" 0 best"));
}

TEST_F(SweepRun, TakesAnEmptyRowForAFailure) {
  const auto job = program("job", "test $1 = a=2 || echo '{\"step\":1,\"loss\":2}' >$DDPXX_RUN_FOLDER/metrics.jsonl");
  const auto ended = run(job, {"a=1,2"});
  EXPECT_EQ(ended.code, 4) << ended.out;
  EXPECT_THAT(ended.err, HasSubstr("job 1 ended with 0, but there is no val_loss and no loss in " +
                                   (sweep_ / "1/metrics.jsonl").string() + ", or the last one is not a number"));
  EXPECT_THAT(ended.err, Not(HasSubstr("job 0 ended with 0, but")));
  EXPECT_EQ(run(job, {"a=1,2"}).code, 4) << "running the sweep again must give the same verdict";
  EXPECT_EQ(run(program("other", "true"), {"b=1,2", "--sweep-dir=" + (folder_ / "b").string(), "--metric=loss"}).code,
            4)
      << "a metric chosen by --metric must exist";
}

TEST_F(SweepRun, TakesALossForEnoughWhereAnotherJobHasAValLoss) {
  const auto job = program("job",
                           "case $1 in a=1) echo '{\"loss\":2}';; *) echo '{\"loss\":2,\"val_loss\":1}';; esac "
                           ">$DDPXX_RUN_FOLDER/metrics.jsonl");
  const auto ended = run(job, {"a=1,2"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(rows_of(ended.out)[2], testing::MatchesRegex("0 a=1 0 [0-9.]+ -"));
  const auto named = run(job, {"a=1,2", "--metric=val_loss"});
  EXPECT_EQ(named.code, 4);
  EXPECT_THAT(named.err, HasSubstr("job 0 ended with 0, but there is no val_loss in "));
}

TEST(SweepMetric, IsTheLastWholeRowsNumber) {
  const TemporaryFolder folder;
  const auto of = [&](const std::string& rows) {
    const auto metric = ddpxx::detail::last_metric(folder.file("metrics.jsonl", rows), "loss");
    return metric ? std::to_string(*metric) : "none";
  };
  EXPECT_EQ(of("{\"step\":1,\"loss\":3.5}\n{\"step\":2,\"other\":1}\n"), "3.500000");
  EXPECT_EQ(of("{\"step\":1,\"note\":\"\\\"loss\\\":1\",\"loss\": -2e-3 }\n"), "-0.002000");
  EXPECT_EQ(of("{\"loss\":1}\n{\"loss\":null}\n"), "none") << "a loss that is not finite must not count";
  EXPECT_EQ(of("{\"val_loss\":1}\n"), "none");
  EXPECT_EQ(of(""), "none");
}

TEST_F(SweepRun, PrintsTheJobsAndStartsNoneWhenDry) {
  const auto ended = run("/bin/false", {"a=1,2", "b='x y'", "--dry-run"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.out, HasSubstr("ddpxx-run --standalone --nproc-per-node=1 /bin/false a=2 'b='\\''x y'\\'''\n"));
  EXPECT_FALSE(std::filesystem::exists(sweep_));
}

TEST_F(SweepRun, VariesTheArgumentsOfAScriptOfPythonAndNotItsName) {
  const auto script = folder_.file("a,b.py", "import sys\nprint(sys.argv[1:])\n");
  for (const char* flag : {"--nproc-per-node=1", "--run-path"}) {
    std::filesystem::remove_all(sweep_);
    const auto ended =
        ddpxx_run({"--standalone", flag, script, "--multirun", "a=1,2", "--sweep-dir=" + sweep_.string()});
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(text("1/log"), "['a=2']\n") << flag;
    EXPECT_EQ(text("1/overrides.yaml"), "- 'a=2'\n") << flag;
  }
  const auto dry = ddpxx_run({"--run-path", script, "--multirun", "a=1,2", "--dry-run"});
  EXPECT_EQ(dry.code, 0) << dry.err;
  const auto command = " " + program_folder() + "/ddpxx-run --standalone --nproc-per-node=1 --run-path " + script;
  EXPECT_EQ(dry.out, "0:" + command + " a=1\n1:" + command + " a=2\n");
}

TEST_F(SweepRun, SaysWhatIsWrongLineByLine) {
  const auto ended = run("/bin/true", {"a=choice()", "b=range(1,2,0)"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("ddpxx-run: argument 5: \"b=range(1,2,0)\": a range with step 0 never ends\n"));
  EXPECT_THAT(run("/nowhere/job", {"a=1,2"}).err, Not(HasSubstr("terminate")));
}

TEST_F(SweepRun, RefusesSeveralMachinesUnlessSlurmStartsThem) {
  const auto ended = ddpxx_run({"--nnodes=2", "--master-addr=here", "/bin/true", "-m", "a=1,2"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("--slurm-array"));
}

TEST_F(SweepRun, LeavesTheMOfOtherProgramsAlone) {
  EXPECT_EQ(ddpxx_run({"sh", "-c", "echo $*", "sh", "-m", "5"}).out, "-m 5\n");
  EXPECT_EQ(ddpxx_run({program("python3", "echo $*"), "-m", "module", "a=1,2"}).out, "-m module a=1,2\n");
}

TEST_F(SweepRun, WritesThroughNoLinkThatLiesInItsFolder) {
  const auto job = program("job", "echo ran");
  const auto victim = folder_.file("victim", "important\n");
  std::filesystem::create_directories(sweep_ / "0");
  for (const char* link : {".lock", "0/log"}) {
    std::filesystem::create_symlink(victim, sweep_ / link);
    const auto ended = run(job, {"a=1"});
    EXPECT_EQ(ended.code, 4) << link;
    EXPECT_THAT(ended.err, HasSubstr("refusing to write to " + (sweep_ / link).string()));
    std::filesystem::remove(sweep_ / link);
  }
  std::filesystem::create_directory(folder_ / "elsewhere");
  std::filesystem::create_directory_symlink(folder_ / "elsewhere", sweep_ / "1");
  EXPECT_EQ(run(job, {"a=1,2"}).code, 4);
  EXPECT_EQ(StartedProgram::text_of(victim), "important\n");
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "elsewhere"));
}

/// Fakes of those Slurm commands that the script uses.
class SlurmArray : public SweepRun {
 protected:
  Ended element(const std::string& script, int number) const {
    const auto file = folder_.file("script", script);
    program("bin/srun",
            "while case $1 in --*) :;; *) false;; esac; do shift; done; export SLURM_NODEID=1; exec \"$@\"");
    program("bin/scontrol", "echo first; echo second");
    return StartedProgram{{"/usr/bin/env", "shown=of another program", "SLURM_ARRAY_TASK_ID=" + std::to_string(number),
                           "SLURM_JOB_ID=123456", "SLURM_JOB_NODELIST=nodes",
                           "PATH=" + (folder_ / "bin").string() + ":/usr/bin:/bin", "/bin/bash", file}}
        .wait();
  }
};

TEST_F(SlurmArray, RunsOneJobAnElementAndKeepsItsExitCode) {
  const auto job = program("job", "echo \"$* $DDPXX_RUN_FOLDER $WORLD_SIZE\"; case $1 in a=1) exit 75;; esac");
  auto asked = words(job, {"a=0,1", "b=it's, x", "--slurm-array", "--jobs=3"});
  asked[6] = "b='it\\'s, x'";
  asked.insert(asked.begin(), "--nproc-per-node=2");
  const auto script = ddpxx_run(asked);
  ASSERT_EQ(script.code, 0) << script.err;
  EXPECT_THAT(script.out, HasSubstr("#SBATCH --array=0-1%3\n"));
  EXPECT_FALSE(std::filesystem::exists(sweep_));

  const auto stopped = element(script.out, 1);
  EXPECT_EQ(stopped.code, 75) << stopped.err;
  EXPECT_THAT(text("1/status"), StartsWith("exit_code: 75\nseconds: "));
  const auto done = element(script.out, 0);
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(text("0/log"), HasSubstr("a=0 b='it\\'s, x' " + (sweep_ / "0").string() + " 2\n"));

  // The launcher reads the results that the array's elements have written.
  asked.erase(std::ranges::find(asked, "--slurm-array"));
  const auto here = ddpxx_run(asked);
  EXPECT_EQ(here.code, 75) << here.err;
  EXPECT_THAT(here.err, HasSubstr("job 0 was done before"));

  const auto before = text("0/log");
  EXPECT_EQ(element(script.out, 0).code, 0);
  EXPECT_EQ(text("0/log"), before) << "a finished job must not run again";
  EXPECT_EQ(element(script.out, 7).code, 2);
  folder_.file("sweep/0/overrides.yaml", "- 'other'\n");
  EXPECT_EQ(element(script.out, 0).code, 2);
}

TEST_F(SlurmArray, EndsWith4WhereTheScriptOrTheListOfJobsCannotBeWritten) {
  for (const char* option : {"--slurm-array", "--dry-run"}) {
    std::vector<std::string> command{"/bin/sh", "-c", "exec \"$0\" \"$@\" >/dev/full", program_folder() + "/ddpxx-run"};
    for (const auto& word : words(program("job", "echo ran"), {"a=1,2", option})) command.push_back(word);
    const auto ended = StartedProgram{command}.wait();
    EXPECT_EQ(ended.code, 4) << option;
    EXPECT_THAT(ended.err, HasSubstr("the output could not be written")) << option;
  }
}

TEST_F(SlurmArray, WritesThroughNoLinkThatLiesInItsFolder) {
  const auto script = ddpxx_run(words(program("job", "echo ran"), {"a=1,2", "--slurm-array"})).out;
  const auto victim = folder_.file("victim", "important\n");
  std::filesystem::create_directories(sweep_ / "0");
  for (const char* link : {"0/overrides.yaml", "0/log"}) {
    std::filesystem::create_symlink(victim, sweep_ / link);
    const auto ended = element(script, 0);
    EXPECT_EQ(ended.code, 4) << link;
    EXPECT_THAT(ended.err, HasSubstr("refusing to write to " + (sweep_ / link).string()));
    std::filesystem::remove(sweep_ / link);
  }
  EXPECT_EQ(StartedProgram::text_of(victim), "important\n");
}

TEST_F(SlurmArray, WritesNoSecretsIntoTheJobsFolders) {
  const auto job = program("job", "echo $*");
  auto asked = words(job, {"a=1,2", "token=abc", "--slurm-array"});
  const auto ended = element(ddpxx_run(asked).out, 1);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(text("1/log"), "a=2 token=abc\n");
  EXPECT_EQ(text("1/overrides.yaml"), "- 'a=2'\n- 'token=***'\n");
  asked.pop_back();
  EXPECT_THAT(ddpxx_run(asked).err, HasSubstr("job 1 was done before"));
}

TEST_F(SlurmArray, StartsALauncherOnEachMachine) {
  const auto launcher = program("launcher", "echo \"$*\"");
  const ddpxx::LaunchPlan plan{
      .num_nodes = 2, .min_nodes = 2, .ranks_per_node = 4, .role = "trainer", .program = "train"};
  const ddpxx::Sweep sweep{.options = {.folder = sweep_}, .jobs = {{.number = 0, .arguments = {"a=x y"}}}};
  const auto script = ddpxx::detail::slurm_array_script(sweep, ddpxx::launch_command(plan, launcher));
  EXPECT_THAT(script, HasSubstr("#SBATCH --nodes=2\n"));
  EXPECT_EQ(element(script, 0).code, 0);
  EXPECT_EQ(text("0/log"),
            "--node-rank=1 --master-addr=first --master-port=23456 --nnodes=2 --nproc-per-node=4 --role=trainer train "
            "a=x y\n");
}

TEST(LaunchCommand, HasTheSettingsOfTheMeeting) {
  ddpxx::LaunchPlan plan{.num_nodes = 2, .min_nodes = 2, .program = "train"};
  plan.join_timeout = std::chrono::milliseconds{1'500};
  plan.keep_alive = {.interval = std::chrono::milliseconds{60'000}, .attempts = 7};
  EXPECT_THAT(ddpxx::launch_command(plan, "launcher").words,
              ElementsAre("launcher", "--nnodes=2", "--nproc-per-node=1",
                          "--rdzv-conf=join_timeout=1.5,keep_alive_interval=60,keep_alive_max_attempt=7", "train"));
  plan.program = "job.py";
  EXPECT_EQ(ddpxx::launch_command(plan, "launcher").words.at(4), "--no-python");
  plan.min_nodes = 1;
  EXPECT_THROW(ddpxx::launch_command(plan, "launcher"), ddpxx::Error);
}

TEST(LaunchCommand, HasTheFlagsOfThePlan) {
  const std::vector<std::string> words{"--standalone",
                                       "--nproc-per-node=2",
                                       "--rdzv-id=job7",
                                       "--max-restarts=3",
                                       "--grace=2.5",
                                       "--role=worker",
                                       "--log-dir=logs",
                                       "--redirects=0:3,1:2",
                                       "--tee=1",
                                       "--local-ranks-filter=0,2",
                                       "--duplicate-stdout-filters=a,,b,c",
                                       "--duplicate-stderr-filters=x",
                                       "--numa-binding=core-complex",
                                       "--virtual-local-rank",
                                       "--signals-to-handle=SIGTERM,SIGUSR1",
                                       "--local-addr=127.0.0.1",
                                       "train"};
  auto all = words;
  all.insert(all.begin(), "launcher");
  EXPECT_EQ(ddpxx::launch_command(ddpxx::parse_launch(words).value(), "launcher").words, all);
}

TEST(SweepFolder, IsNewWhereNoneIsNamed) {
  const TemporaryFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const ddpxx::detail::SweepFolder one{"", {}}, two{"", {}};
  std::filesystem::current_path(before);
  EXPECT_NE(one.path(), two.path());
  EXPECT_EQ(one.path().parent_path(), std::filesystem::canonical(folder.path()) / "multirun");
}

TEST(SweepCommand, IsNoneOfALaunchedRank) {
  ::setenv("RANK", "0", 1);
  EXPECT_THROW(ddpxx::own_command("train"), ddpxx::Error);
  ::unsetenv("RANK");
  EXPECT_THAT(ddpxx::own_command("train").words, ElementsAre("train"));
}

}  // namespace
}  // namespace sweep_test
