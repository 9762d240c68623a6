#include <sys/stat.h>
#include <sys/types.h>

#include <gtest/gtest.h>

#include <ddpxx/core/rank_progress.hpp>
#include <ddpxx/launch/agent/progress_page.hpp>

namespace ddpxx::progress_page_test {
namespace {

TEST(ProgressPage, HasItsMemoryBeforeARankWritesToIt) {
  detail::ProgressPage page;
  ASSERT_GE(page.descriptor().get(), 0);
  struct ::stat facts {};
  ASSERT_EQ(::fstat(page.descriptor().get(), &facts), 0);
  EXPECT_EQ(facts.st_size, static_cast<off_t>(sizeof(RankProgress)));
  EXPECT_GE(facts.st_blocks * 512, facts.st_size);
  ASSERT_NE(page.progress(), nullptr);
  EXPECT_EQ(page.progress()->step(), 0);
}

}  // namespace
}  // namespace ddpxx::progress_page_test
