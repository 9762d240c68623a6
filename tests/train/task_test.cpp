// A task runs in a thread of its own, or in the thread that asks for its result.
#include <future>
#include <thread>

#include <gtest/gtest.h>

#include <ddpxx/train/task.hpp>

#include "../without_threads.hpp"

namespace ddpxx::task_test {
namespace {

const auto kThreadOfTask = [] { return std::this_thread::get_id(); };

TEST(Task, RunsInTheBackgroundOrWhenItIsAsked) {
  EXPECT_NE(start_task(TaskRuns::in_background, kThreadOfTask).get(), std::this_thread::get_id());
  auto asked = start_task(TaskRuns::when_asked, kThreadOfTask);
  EXPECT_TRUE(is_done(asked)) << "get() waits for no thread";
  EXPECT_EQ(asked.get(), std::this_thread::get_id());
  EXPECT_TRUE(is_done(asked)) << "there is no task any more";
}

TEST(Task, RunsWhenItIsAskedWhereTheSystemGivesNoThread) {
  without_threads([] {
    auto task = start_task(TaskRuns::in_background, kThreadOfTask);
    EXPECT_TRUE(is_done(task));
    EXPECT_EQ(task.get(), std::this_thread::get_id());
  });
}

}  // namespace
}  // namespace ddpxx::task_test
