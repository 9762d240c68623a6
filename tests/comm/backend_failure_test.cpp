// A backend's failure in a thread of its own, as NCCL's: how a program ends then, and which log lines are printed.
#include <csignal>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <typeinfo>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/backend_log.hpp>
#include <ddpxx/launch/program.hpp>

namespace ddpxx::backend_failure_test {
namespace {

using testing::ExitedWithCode;
using testing::KilledBySignal;

/// Runs a program whose second thread throws `cause` while the first one waits.
template <class Cause>
[[noreturn]] void run_until(const Cause& cause) {
  run_program("name", [&] { std::thread{[&] { throw cause; }}.join(); });
}

c10::DistBackendError backend_error(const std::string& text) { return {{__func__, __FILE__, __LINE__}, text}; }

TEST(BackendFailure, EndsTheProgramAsALostPeerWithTheBackendsText) {
  EXPECT_EQ(typeid(c10::DistBackendError).name(), detail::kBackendError);
  ::setenv("RANK", "1", 1);
  EXPECT_EXIT(run_until(backend_error("[PG ID 0 PG GUID 0 Rank 1] Process group watchdog thread terminated with "
                                      "exception: [Rank 1] Watchdog caught collective operation timeout: "
                                      "WorkNCCL(SeqNum=7, OpType=ALLREDUCE)\nException raised from checkTimeout")),
              ExitedWithCode(5),
              "^name: rank 1: error: a collective failed: a rank is gone or did not answer in time; the cause: "
              "\\[PG ID 0 PG GUID 0 Rank 1\\] Process group watchdog thread terminated with exception: \\[Rank 1\\] "
              "Watchdog caught collective operation timeout: WorkNCCL\\(SeqNum=7, OpType=ALLREDUCE\\)\n$");
  ::unsetenv("RANK");
}

TEST(BackendFailure, IsReportedOnOneLine) {
  EXPECT_EXIT(run_until(backend_error("NCCL error: remote process exited\nncclRemoteError: a\x1b call failed")),
              ExitedWithCode(5), "the cause: NCCL error: remote process exited ncclRemoteError: a.x1b call failed\n$");
}

TEST(BackendFailure, OfTheGPUItselfIsNoLostPeer) {
  EXPECT_EXIT(run_until(backend_error("Process group watchdog thread terminated with exception: CUDA error: an illegal "
                                      "memory access was encountered")),
              ExitedWithCode(1), "^name: error: Process group watchdog");
  EXPECT_EXIT(run_until(backend_error("NCCL error: unhandled cuda error\nCuda failure 2 'out of memory'")),
              ExitedWithCode(7), "^name: error: out of memory in a collective");
}

TEST(BackendFailure, LeavesOtherExceptionsToTheHandlerBefore) {
  EXPECT_EXIT(run_until(std::runtime_error{"a thread's own"}), KilledBySignal(SIGABRT), "a thread's own");
  EXPECT_EXIT(
      {
        std::set_terminate([] { std::_Exit(42); });
        run_until(std::runtime_error{"a thread's own"});
      },
      ExitedWithCode(42), "^$");
}

TEST(BackendFailure, TheLogOfNcclKeepsItsErrors) {
  const auto log = [](Backend backend) {
    ::unsetenv("TORCH_CPP_LOG_LEVEL");
    quiet_backend_log(backend);
    LOG(WARNING) << "a warning";
    LOG(ERROR) << "an error";
    std::_Exit(0);
  };
  EXPECT_EXIT(log(Backend::gloo), ExitedWithCode(0), "^$");
  EXPECT_EXIT(log(Backend::nccl), ExitedWithCode(0), "^[^\n]*an error\n$");
}

}  // namespace
}  // namespace ddpxx::backend_failure_test
