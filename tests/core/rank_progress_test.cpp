// The memory in which a rank notes its last step and its last collective.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/rank_progress.hpp>

namespace ddpxx::rank_progress_test {
namespace {

TEST(RankProgress, NamesTheCollectiveThatARankWaitsFor) {
  RankProgress progress;
  EXPECT_EQ(progress.collective(), "");
  progress.note_start("all_reduce", 4'096);
  EXPECT_EQ(progress.collective(), "all_reduce of 4096 bytes (collective 1 of this rank)");
  progress.note_start("barrier", 0);
  progress.note_wait("all_reduce", 4'096, 1);
  EXPECT_EQ(progress.collective(), "all_reduce of 4096 bytes, which did not end (collective 1 of this rank)");
  EXPECT_EQ(progress.last_collective(), "all_reduce of 4096 bytes (collective 1)");
  EXPECT_EQ(progress.awaited_number(), 1);
  progress.note_failure();
  EXPECT_EQ(progress.awaited_number(), 0);
  EXPECT_EQ(progress.collective(), "all_reduce of 4096 bytes, which did not end (collective 1 of this rank)");
  progress.note_wait("all_reduce", 4'096, 1);
  progress.note_end();
  EXPECT_EQ(progress.collective(), "barrier of 0 bytes (collective 2 of this rank)");
  progress.note_start("of the program", 1);
  EXPECT_EQ(progress.collective(), "a collective of 1 bytes (collective 3 of this rank)");
}

TEST(RankProgress, IsInTheMemoryOfTheLauncher) {
  const Descriptor memory{::memfd_create("test", 0)};
  ASSERT_EQ(::ftruncate(memory.get(), sizeof(RankProgress)), 0);
  struct stat found {};
  ::fstat(memory.get(), &found);
  const auto shared = [&](std::uint64_t inode) {
    ::setenv(kProgressVariable, (std::to_string(memory.get()) + ':' + std::to_string(inode)).c_str(), 1);
    auto* const progress = detail::shared_progress();
    ::unsetenv(kProgressVariable);
    return progress;
  };
  EXPECT_EQ(shared(found.st_ino + 1), nullptr) << "another file under that number";
  auto* const rank = shared(found.st_ino);
  auto* const launcher = shared(found.st_ino);
  ASSERT_TRUE(rank != nullptr && launcher != nullptr);
  rank->note_step(12);
  EXPECT_EQ(launcher->step(), 12);
  EXPECT_EQ(detail::shared_progress(), nullptr);
}

}  // namespace
}  // namespace ddpxx::rank_progress_test
