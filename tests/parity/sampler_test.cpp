#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/data/distributed_sampler.hpp>

#include "python.hpp"

namespace ddpxx::sampler_test {
namespace {

TEST(SamplerParity, DealsTheSameIndicesAsPythonForFiveHundredRandomSettings) {
  constexpr int kSettings = 500;
  std::istringstream lines{run_python("sampler.py", {std::to_string(kSettings), "2011"})};
  int settings = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words{line};
    std::int64_t size = 0;
    std::int64_t epoch = 0;
    DistributedSamplerConfig config;
    words >> size >> config.world_size >> config.rank >> config.seed >> epoch >> config.shuffle >> config.drop_last;
    ASSERT_TRUE(words) << line;
    std::vector<std::int64_t> expected;
    for (std::int64_t index = 0; words >> index;) expected.push_back(index);

    DistributedSampler sampler{size, config};
    sampler.set_epoch(epoch);
    ASSERT_EQ(std::vector<std::int64_t>(sampler.begin(), sampler.end()), expected) << line.substr(0, 80);
    ASSERT_EQ(sampler.size(), std::ssize(expected));
    settings += config.rank == 0 ? 1 : 0;
  }
  EXPECT_EQ(settings, kSettings);
}

}  // namespace
}  // namespace ddpxx::sampler_test
