// ranks_test.cpp — unit tests as a user writes them, on ranks that really communicate.
#include <cstdint>
#include <stdexcept>
#include <string>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/data/distributed_sampler.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/parallel/reducer.hpp>
#include <ddpxx/testing.hpp>

TEST(DistributedSampler, SharesTheSamplesAmongTheRanks) {
  ddpxx::spawn_ranks(2, [](ddpxx::Group& group) {
    ddpxx::DistributedSampler sampler{10, {.rank = group.rank(), .world_size = group.size(), .seed = 0}};
    sampler.set_epoch(3);
    auto seen = at::zeros({10});
    for (const std::int64_t index : sampler) seen[index].add_(1);
    EXPECT_EQ(sampler.size(), 5);
    ddpxx::all_reduce(seen, group);
    EXPECT_TRUE(at::equal(seen, at::ones({10})));
  });
}

TEST(Reducer, AveragesGradientsOverTheRanks) {
  ddpxx::spawn_ranks(2, [](ddpxx::Group& group) {
    auto weight = at::zeros({3}).set_requires_grad(true);
    ddpxx::Arena arena{{{"weight", weight}}};
    ddpxx::Reducer reducer{arena, group};
    at::Tensor{arena[0].gradient}.fill_(group.rank() == 0 ? 1.0 : 3.0);
    reducer.ready(0);
    reducer.finish();
    EXPECT_TRUE(at::equal(arena[0].gradient, at::full({3}, 2.0)));
  });
}

TEST(Reducer, ReportsTheRankThatFails) {
  try {
    ddpxx::spawn_ranks(2, [](ddpxx::Group& group) {
      if (group.rank() == 1) throw std::runtime_error{"out of ideas"};
    });
    FAIL() << "the failure of a rank was not reported";
  } catch (const ddpxx::Error& error) {
    EXPECT_NE(std::string{error.what()}.find("rank 1: out of ideas"), std::string::npos) << error.what();
  }
}
