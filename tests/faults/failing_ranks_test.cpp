// One of two ranks ends, hangs or is asked to stop, at each place of a training: all ranks end within a limit, and the
// launcher says why.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../launch/started_program.hpp"
#include "../temporary_folder.hpp"

namespace failing_ranks_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

/// What rank 1 does and where, the exit code of the launcher, and a part of its messages.
struct Fault {
  std::string what, where;
  int code;
  std::string message;
};

std::string signal(int number) { return std::to_string(number); }

const std::string kRankOne = "rank      : 1 (local_rank: 1)";

class FailingRanks : public testing::Test {
 protected:
  /// Expects an end within 30 s for each start: limits of 60 s are not to be waited for.
  Ended run(const Fault& fault, int max_restarts = 0) const {
    const auto start = std::chrono::steady_clock::now();
    const bool never_comes = fault.what == "exit" && fault.where == "start", hangs = fault.what == "hang";
    auto end = StartedProgram{command({"FAULT=" + fault.what, "FAULT_AT=" + fault.where}, max_restarts,
                                      {"training.max_steps=8",
                                       "training.save_dir=" + (folder_ / (fault.what + fault.where)).string(),
                                       "comm.join_timeout=" + std::string{never_comes ? "5" : "60"},
                                       "comm.collective_timeout=" + std::string{hangs ? "5" : "60"}})}
                   .wait();
    EXPECT_LT(std::chrono::steady_clock::now() - start, (1 + max_restarts) * std::chrono::seconds{30})
        << fault.what << " at " << fault.where << '\n'
        << end.err;
    return end;
  }

  static Words command(const Words& variables, int max_restarts, const Words& settings) {
    Words words{"/usr/bin/env", "OMP_NUM_THREADS=1"};
    words.insert(words.end(), variables.begin(), variables.end());
    const Words program{program_folder() + "/ddpxx-run",
                        "--standalone",
                        "--nproc-per-node=2",
                        "--max-restarts=" + std::to_string(max_restarts),
                        program_folder() + "/failing_program",
                        "training.device=cpu",
                        "training.max_epochs=0",
                        "training.eval_every=2",
                        "batch_size=8",
                        "training.eval_samples=64",
                        "training.save_every=2"};
    words.insert(words.end(), program.begin(), program.end());
    words.insert(words.end(), settings.begin(), settings.end());
    return words;
  }

  TemporaryFolder folder_;
};

TEST_F(FailingRanks, EndAllRanksAndAreNamed) {
  for (const Fault& fault :
       {Fault{signal(SIGKILL), "start", 128 + SIGKILL, kRankOne},
        Fault{signal(SIGSEGV), "data", 128 + SIGSEGV, kRankOne},
        Fault{signal(SIGABRT), "backward", 128 + SIGABRT, kRankOne},
        Fault{signal(SIGKILL), "evaluation", 128 + SIGKILL, kRankOne},
        Fault{"terminate", "forward", 128 + SIGABRT, kRankOne}, Fault{"throw", "backward", 1, "the valve is stuck"},
        Fault{"throw", "evaluation", 1, "the valve is stuck"}, Fault{"memory", "forward", 7, "out of memory"},
        Fault{"exit", "start", 5, "rank 1 never came"}, Fault{"exit", "backward", 5, "rank 1 (local_rank: 1, pid: "}}) {
    const auto end = run(fault);
    EXPECT_EQ(end.code, fault.code) << fault.what << " at " << fault.where << '\n' << end.err;
    EXPECT_THAT(end.err, HasSubstr(fault.message)) << fault.what << " at " << fault.where;
  }
}

TEST_F(FailingRanks, ThatHangAreNamedWithinTheLimitOfACollective) {
  for (const char* where : {"data", "backward", "evaluation"}) {
    const auto end = run({"hang", where, 5, {}});
    EXPECT_EQ(end.code, 5) << where << '\n' << end.err;
    EXPECT_THAT(end.err, HasSubstr("rank 1 was still running when all other ranks had lost a peer")) << where;
    EXPECT_THAT(end.err, HasSubstr("[rank1]: call stack of the main thread, the innermost call first:")) << where;
    EXPECT_THAT(end.err, HasSubstr("failing_program(")) << where << ": the stack has no call of the program";
    EXPECT_THAT(end.err, Not(HasSubstr("[rank0]: call stack"))) << where;
  }
}

TEST_F(FailingRanks, AreStartedAgainWhileRestartsRemain) {
  for (const auto& [what, where] : {std::pair{"throw", "backward"}, {"hang", "evaluation"}, {"exit", "forward"}}) {
    const auto end = run({what, where, 0, {}}, 1);
    EXPECT_EQ(end.code, 0) << what << " at " << where << '\n' << end.err;
    EXPECT_THAT(end.err, HasSubstr("restart 1 of 1")) << what << " at " << where;
  }
}

TEST_F(FailingRanks, StopTogetherWhereASignalReachesOneOfThem) {
  for (const auto& [number, where] :
       {std::pair{SIGTERM, "data"}, {SIGINT, "backward"}, {SIGTERM, "evaluation"}, {SIGUSR1, "evaluation"}}) {
    const auto end = run({signal(number), where, 75, {}});
    EXPECT_EQ(end.code, 75) << number << " at " << where << '\n' << end.err;
    EXPECT_THAT(end.err, HasSubstr("on rank 1 after step ")) << number << " at " << where;
  }
}

TEST_F(FailingRanks, StopTogetherWhereASignalComesDuringASave) {
  for (const std::string writing : {"foreground", "background"}) {
    const auto save_dir = folder_ / writing;
    const auto manifest = [&](const std::string& digits) { return save_dir / ("step-" + digits) / "manifest.json"; };
    const auto files = [&] {
      const std::filesystem::path begun = save_dir / "step-00000004";
      std::error_code absent;
      const std::filesystem::directory_iterator first{begun, absent};
      return absent ? 0 : std::distance(begin(first), end(first));
    };
    // Rank 0 pauses before it commits the second snapshot.
    StartedProgram run{command({"DDPXX_FAILPOINT=snapshot.before_commit:sleep:3000@2,rank=0"}, 0,
                               {"training.max_steps=1000000", "snapshot.writing=" + writing, "snapshot.keep_last=0",
                                "training.save_dir=" + save_dir.string()})};
    const auto latest = std::chrono::steady_clock::now() + std::chrono::minutes{2};
    while (files() < 2 && std::chrono::steady_clock::now() < latest)
      std::this_thread::sleep_for(std::chrono::milliseconds{10});
    if (files() < 2) run.signal(SIGKILL);
    run.signal(SIGTERM);
    EXPECT_FALSE(std::filesystem::exists(manifest("00000004"))) << "the signal has to come before the commit";
    const auto end = run.wait();
    EXPECT_EQ(end.code, 75) << writing << end.err;
    const auto at = end.err.find(" after step ");
    ASSERT_NE(at, std::string::npos) << end.err;
    const auto step = std::to_string(std::stoi(end.err.substr(at + 12)));
    EXPECT_TRUE(std::filesystem::exists(manifest("00000004"))) << writing;
    EXPECT_TRUE(std::filesystem::exists(manifest(std::string(8 - step.size(), '0') + step))) << writing << end.err;
  }
}

}  // namespace
}  // namespace failing_ranks_test
