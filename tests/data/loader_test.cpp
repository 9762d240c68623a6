#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>

#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/distributed_sampler.hpp>
#include <ddpxx/data/loader.hpp>
#include <ddpxx/data/worker_threads.hpp>

#include "../error_of.hpp"
#include "../without_threads.hpp"
#include "numbers_dataset.hpp"

namespace ddpxx::loader_test {
namespace {

using Indices = std::vector<std::int64_t>;
using NumbersLoader = Loader<NumbersDataset>;

Indices first(std::int64_t count) {
  Indices indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

/// Waits for another thread; a deadlock ends by the test's own time limit.
template <class Condition>
void wait_until(Condition condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds{1});
}

class LoaderTest : public testing::TestWithParam<std::int64_t> {
 protected:
  std::int64_t num_workers() const { return GetParam(); }
  std::shared_ptr<NumbersDataset> dataset = std::make_shared<NumbersDataset>(1000);
};
INSTANTIATE_TEST_SUITE_P(Workers, LoaderTest, testing::Values(0, 1, 3));

TEST_P(LoaderTest, DeliversEveryBatchInOrderAndTheLastOneInPart) {
  // Every eighth batch takes longer, so that threads finish out of order.
  dataset->before_batch = [](auto indices) {
    std::this_thread::sleep_for(std::chrono::microseconds{indices[0] % 8 == 0 ? 300 : 0});
  };
  NumbersLoader loader{dataset, first(50), {.batch_size = 4, .num_workers = num_workers()}};
  Indices seen;
  std::vector<std::size_t> sizes;
  while (const auto batch = loader.next()) {
    const auto values = numbers(*batch);
    seen.insert(seen.end(), values.begin(), values.end());
    sizes.push_back(values.size());
  }
  EXPECT_EQ(seen, first(50));
  EXPECT_EQ(sizes.size(), 13U);
  EXPECT_EQ(sizes.back(), 2U);
  EXPECT_FALSE(loader.next());
}

TEST_P(LoaderTest, ReadsASamplerAsItGoes) {
  DistributedSampler sampler{1000, {.rank = 1, .world_size = 3, .seed = 2}};
  NumbersLoader loader{dataset, sampler, {.batch_size = 7, .num_workers = num_workers()}};
  Indices seen;
  while (const auto batch = loader.next())
    for (const auto number : numbers(*batch)) seen.push_back(number);
  EXPECT_EQ(seen, Indices(sampler.begin(), sampler.end()));
}

TEST_P(LoaderTest, DeliversAnErrorInItsPlaceAndGoesOn) {
  dataset->before_batch = [](auto indices) {
    if (indices[0] == 4) throw Error{Errc::data, "shard 4 is torn"};
    if (indices[0] == 8) throw std::runtime_error{"another text"};
  };
  NumbersLoader loader{dataset, first(16), {.batch_size = 4, .num_workers = num_workers()}};
  EXPECT_EQ(numbers(*loader.next()).front(), 0);
  try {
    loader.next();
    ADD_FAILURE() << "the error was lost";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::data);
    EXPECT_STREQ(error.what(), "shard 4 is torn");
  }
  EXPECT_THROW(loader.next(), std::runtime_error);
  EXPECT_EQ(numbers(*loader.next()).front(), 12);
  EXPECT_FALSE(loader.next());
}

TEST_P(LoaderTest, CanBeLeftInTheMiddleAndBeforeTheFirstBatch) {
  NumbersLoader never_asked{dataset, first(1000), {.batch_size = 1, .num_workers = num_workers()}};
  NumbersLoader left{dataset, first(1000), {.batch_size = 1, .num_workers = num_workers()}};
  left.next();
  NumbersLoader without_indices{dataset, first(0), {.batch_size = 1, .num_workers = num_workers()}};
  EXPECT_FALSE(without_indices.next());
}

TEST_P(LoaderTest, KeepsTheDatasetAlive) {
  NumbersLoader loader{std::make_shared<NumbersDataset>(8), first(8), {.batch_size = 4, .num_workers = num_workers()}};
  EXPECT_EQ(numbers(*loader.next()), first(4));
}

TEST_P(LoaderTest, RefusesOptionsThatMakeNoSense) {
  EXPECT_THROW((NumbersLoader{dataset, first(4), {.batch_size = 0, .num_workers = num_workers()}}), Error);
  EXPECT_THROW((NumbersLoader{dataset, first(4), {.batch_size = 1, .num_workers = -1}}), Error);
  EXPECT_THROW((NumbersLoader{dataset, first(4), {.batch_size = 1, .num_workers = 1'000'000'000}}), Error);
}

TEST(Loader, BuildsNothingAheadWithoutWorkers) {
  std::atomic<int> built = 0;
  const auto dataset = std::make_shared<NumbersDataset>(100, [&](auto) { ++built; });
  NumbersLoader loader{dataset, first(100), {.batch_size = 1}};
  EXPECT_EQ(built, 0);
  loader.next();
  EXPECT_EQ(built, 1);
}

TEST(Loader, BuildsTwoBatchesAWorkerAheadAndNoMore) {
  std::atomic<int> built = 0;
  const auto dataset = std::make_shared<NumbersDataset>(100, [&](auto) { ++built; });
  NumbersLoader loader{dataset, first(100), {.batch_size = 1, .num_workers = 3}};
  wait_until([&] { return built >= 6; });
  loader.next();
  wait_until([&] { return built >= 7; });
  std::this_thread::sleep_for(std::chrono::milliseconds{20});  // long enough for one batch too many to be loaded
  EXPECT_EQ(built, 7);
}

TEST(Loader, StopsWithoutRunningTheJobsThatStillWait) {
  std::atomic<int> done = 0;
  {
    WorkerThreads workers{2};
    for (int i = 0; i < 4000; ++i)
      workers.add([&done] {
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
        ++done;
      });
  }
  EXPECT_LT(done, 4000);
}

TEST(Loader, GivesItsWorkersOneThreadEachAndLeavesTheOthersTheirs) {
  at::set_num_threads(3);
  std::mutex mutex;
  std::set<int> of_workers;
  const auto dataset = std::make_shared<NumbersDataset>(10, [&](auto) {
    const std::lock_guard lock{mutex};
    of_workers.insert(at::get_num_threads());
  });
  NumbersLoader loader{dataset, first(10), {.batch_size = 1, .num_workers = 2}};
  while (loader.next()) {
  }
  EXPECT_EQ(of_workers, std::set<int>{1});
  EXPECT_EQ(at::get_num_threads(), 3);
  int of_a_later_thread = 0;
  std::thread{[&] { of_a_later_thread = at::get_num_threads(); }}.join();
  EXPECT_EQ(of_a_later_thread, 3);
}

TEST(WorkerThreads, NameTheLimitOfTheSystem) {
  without_threads([] {
    EXPECT_EQ(WorkerThreads{0}.size(), 0U);
    const auto make = [] { WorkerThreads{3}; };
    EXPECT_EQ(code_of(make), Errc::config);
    EXPECT_EQ(error_of(make),
              "cannot start worker 1 of 3: Resource temporarily unavailable (limit: ulimit -u); lower num_workers");
  });
}

}  // namespace
}  // namespace ddpxx::loader_test
