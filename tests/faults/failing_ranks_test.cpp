// One of two ranks ends, hangs or is asked to stop, at each place of a training: all ranks end within a limit, and the
// launcher says why.
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../launch/started_program.hpp"
#include "../temporary_folder.hpp"

namespace {

using testing::HasSubstr;

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
  Ended run(const Fault& fault, int max_restarts = 0) const {
    return StartedProgram{{"/usr/bin/env", "OMP_NUM_THREADS=1", "FAULT=" + fault.what, "FAULT_AT=" + fault.where,
                           program_folder() + "/ddpxx-run", "--standalone", "--nproc-per-node=2",
                           "--max-restarts=" + std::to_string(max_restarts), program_folder() + "/failing_program",
                           "training.device=cpu", "training.max_epochs=0", "training.max_steps=8",
                           "training.eval_every=2", "batch_size=8", "training.eval_samples=64", "training.save_every=2",
                           "training.save_dir=" + (folder_ / (fault.what + fault.where)).string(),
                           "comm.join_timeout=" + std::string{fault.what == "exit" ? "5" : "60"},
                           "comm.collective_timeout=" + std::string{fault.what == "hang" ? "5" : "60"}}}
        .wait();
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

}  // namespace
