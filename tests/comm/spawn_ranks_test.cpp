#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/testing.hpp>

#include "../error_of.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::spawn_ranks_test {
namespace {

using testing::HasSubstr;

TEST(SpawnRanks, KillsAndNamesARankThatHangs) {
  const auto text = error_of([] {
    spawn_ranks(2,
                [](Group& group) {
                  if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::hours{1});
                },
                {.ranks = Ranks::processes, .deadline = std::chrono::milliseconds{1500}});
  });
  EXPECT_THAT(text, HasSubstr("rank 1: still running at the deadline of 1500 ms, killed"));
}

TEST(SpawnRanks, NamesTheSignalThatEndedARank) {
  const auto text = error_of([] {
    spawn_ranks(2, [](Group& group) {
      if (group.rank() == 0) ::raise(SIGKILL);
    });
  });
  EXPECT_THAT(text, testing::StartsWith("rank 0: ended by signal 9"));
}

TEST(SpawnRanks, PutsTheCauseBeforeTheRanksThatLostAPeer) {
  for (const auto ranks : {Ranks::processes, Ranks::threads}) {
    const auto text = error_of([&] {
      spawn_ranks(2,
                  [](Group& group) {
                    if (group.rank() == 1) throw std::runtime_error{"out of ideas"};
                    if (group.size() > 2) barrier(group);
                  },
                  {.ranks = ranks, .deadline = std::chrono::minutes{1}});
    });
    EXPECT_THAT(text, testing::StartsWith("rank 1: out of ideas"));
  }
}

TEST(SpawnRanks, CarriesAFailedAssertionOutOfAProcess) {
  // The assertion fails in the forked rank only; this process sees it as the rank's error.
  const auto text =
      error_of([] { spawn_ranks(2, [](Group& group) { EXPECT_EQ(group.rank(), 0) << "(meant to fail in rank 1)"; }); });
  EXPECT_THAT(text, HasSubstr("rank 1: an assertion failed"));
}

TEST(SpawnRanks, CarriesAFailedAssertionOutBesideAnException) {
  const auto text = error_of([] {
    spawn_ranks(2, [](Group& group) {
      EXPECT_EQ(group.rank(), 0) << "(meant to fail in rank 1)";
      throw Error{Errc::numerics, "the loss is not a number"};
    });
  });
  EXPECT_THAT(text, HasSubstr("rank 0: the loss is not a number"));
  EXPECT_THAT(text, HasSubstr("rank 1: an assertion failed, see above; then: the loss is not a number"));
}

TEST(SpawnRanks, GivesEachRankTheDeviceThatIsAskedFor) {
  for (const auto ranks : {Ranks::processes, Ranks::threads}) {
    for (const int world : {1, 2})
      spawn_ranks(world, [](Group& group) { EXPECT_EQ(group.device(), at::kCPU); }, {.ranks = ranks, .device = "auto"});
    EXPECT_THAT(error_of([&] { spawn_ranks(2, [](Group&) {}, {.ranks = ranks, .device = "cuda"}); }),
                HasSubstr("device=cuda: this build has no CUDA"));
  }
}

TEST(SpawnRanks, UsesTheCpuWhereNcclWouldNeedMoreGpus) {
  EXPECT_STREQ(detail::auto_device(Backend::automatic, 2, 1), "cpu");
  EXPECT_STREQ(detail::auto_device(Backend::automatic, 2, 2), "auto");
  EXPECT_STREQ(detail::auto_device(Backend::automatic, 2, 0), "auto") << "pick_device logs why a GPU is not used";
  EXPECT_STREQ(detail::auto_device(Backend::gloo, 2, 1), "auto") << "ranks share a GPU over Gloo";
}

TEST(SpawnRanks, KnowsThatThisProgramHasUsedAGpu) {
  const TemporaryFolder descriptors;
  EXPECT_FALSE(detail::has_opened_gpu(descriptors / "absent"));
  std::filesystem::create_symlink("/dev/null", descriptors / "0");
  EXPECT_FALSE(detail::has_opened_gpu(descriptors.path()));
  std::filesystem::create_symlink("/dev/nvidiactl", descriptors / "7");
  EXPECT_TRUE(detail::has_opened_gpu(descriptors.path()));
}

TEST(SpawnRanks, RefusesAWorldOfNone) {
  EXPECT_THAT(error_of([] { spawn_ranks(0, [](Group&) {}); }), HasSubstr("at least one"));
}

}  // namespace
}  // namespace ddpxx::spawn_ranks_test
