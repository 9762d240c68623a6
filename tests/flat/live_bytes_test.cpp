#include <thread>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/flat/buffer_pool.hpp>
#include <ddpxx/flat/live_bytes.hpp>
#include <ddpxx/testing.hpp>

namespace ddpxx::live_bytes_test {
namespace {

TEST(LiveBytes, CountsWhatTensorsTakeNowAndHaveTakenAtMost) {
  const auto before = at::empty({1000});
  LiveBytes live;
  EXPECT_EQ(live.current(), 0) << "memory that existed before must not count";
  {
    const auto x = at::empty({1000});
    EXPECT_EQ(live.current(), 4000);
    const auto y = at::empty({500});
    const auto view = y.narrow(0, 10, 20);
    EXPECT_EQ(live.current(), 6000);
  }
  EXPECT_EQ(live.current(), 0);
  EXPECT_EQ(live.peak(), 6000);
  live.reset_peak();
  EXPECT_EQ(live.peak(), 0);
}

TEST(LiveBytes, SeesWhatAPoolOfBuffersTakesAndGivesBack) {
  LiveBytes live;
  {
    BufferPool pool;
    const auto tensor = at::empty({256});
    EXPECT_EQ(live.current(), 1024);
    BufferPool::release(tensor);
    EXPECT_EQ(live.current(), 0);
    pool.lend(tensor);
    EXPECT_EQ(live.current(), 1024);
    pool.take_back(tensor);
    EXPECT_EQ(live.current(), 1024) << "the pool must keep the memory";
    pool.lend(tensor);
    EXPECT_EQ(live.peak(), 1024);
  }
  EXPECT_EQ(live.current(), 0);
}

TEST(BufferPool, LeavesATensorThatHasMoreRoomThanItNeedsAsItIs) {
  BufferPool pool;
  const auto tensor = at::empty({256});
  BufferPool::release(tensor);
  pool.lend(tensor, 300);
  tensor.fill_(7);
  pool.lend(tensor);
  EXPECT_TRUE(at::equal(tensor, at::full({256}, 7.0)));
  EXPECT_EQ(pool.buffers_made(), 1U);
}

TEST(LiveBytes, SeesWhatForwardSavesAndBackwardFrees) {
  const auto weight = at::rand({64, 64}).requires_grad_();
  const auto x = at::rand({32, 64}).requires_grad_();
  LiveBytes live;
  {
    const auto loss = at::linear(x, weight).tanh().sum();
    EXPECT_EQ(live.current(), 32 * 64 * 4 + 4) << "the result of tanh, and the loss";
    loss.backward();
  }
  EXPECT_EQ(live.current(), (32 * 64 + 64 * 64) * 4) << "the two gradients";
}

TEST(LiveBytes, DoesNotCountOtherThreads) {
  LiveBytes live;
  std::thread{[] { const auto x = at::empty({1000}); }}.join();
  EXPECT_EQ(live.peak(), 0);
  EXPECT_EQ(live.peak_elsewhere(), 0);
}

TEST(LiveBytes, CountsApartWhatGloosThreadsTakeForThisOne) {
  spawn_ranks(2, [](Group& group) {
    LiveBytes live;
    const auto mine = at::ones({1 << 18});
    const auto all = at::empty({2 << 18});
    all_gather(all, mine, group);
    EXPECT_EQ(live.peak_elsewhere(), 2 << 20) << "expected a copy of the gathered memory";
    live.reset_peak();
    all_reduce(mine, group);
    EXPECT_EQ(live.peak_elsewhere(), 0);
  });
}

}  // namespace
}  // namespace ddpxx::live_bytes_test
