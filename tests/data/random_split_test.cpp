#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/data/random_split.hpp>

namespace ddpxx::random_split_test {
namespace {

using Indices = std::vector<std::int64_t>;

std::vector<Indices> lists(const std::vector<at::Tensor>& parts) {
  std::vector<Indices> lists;
  for (const auto& part : parts) {
    const auto* data = part.const_data_ptr<std::int64_t>();
    lists.emplace_back(data, data + part.numel());
  }
  return lists;
}

TEST(RandomSplit, CutsWherePyTorchCuts) {
  EXPECT_EQ(lists(random_split({7, 3}, 0)), (std::vector<Indices>{{4, 1, 7, 5, 3, 9, 0}, {8, 6, 2}}));
  EXPECT_EQ(lists(random_split(split_lengths(11, {0.5, 0.5}), 3)),
            (std::vector<Indices>{{9, 0, 3, 6, 4, 5}, {2, 8, 1, 10, 7}}));
}

TEST(RandomSplit, RoundsFractionsDownAndDealsOutTheRest) {
  EXPECT_EQ(split_lengths(10, {0.9, 0.1}), (Indices{9, 1}));
  EXPECT_EQ(split_lengths(11, {0.5, 0.5}), (Indices{6, 5}));
  EXPECT_EQ(split_lengths(10, {1.0 / 3, 1.0 / 3, 1.0 / 3}), (Indices{4, 3, 3}));
  EXPECT_EQ(split_lengths(11, {1.0 / 3, 1.0 / 3, 1.0 / 3}), (Indices{4, 4, 3}));
  EXPECT_EQ(split_lengths(7, {1.0, 0.0}), (Indices{7, 0}));
  EXPECT_EQ(split_lengths(4'000'000'000, {0.5, 0.5 + 9e-10}), (Indices{2'000'000'000, 2'000'000'000}));
  EXPECT_EQ(split_lengths(0, {0.5, 0.5}), (Indices{0, 0}));
}

TEST(RandomSplit, RefusesFractionsAndLengthsThatMakeNoSense) {
  for (const std::vector<double>& fractions : {std::vector<double>{0.5, 0.4}, {1.5, -0.5}, {}, {0.0 / 0.0, 1.0}})
    EXPECT_THROW(split_lengths(10, fractions), Error);
  EXPECT_THROW(random_split({5, -1}, 0), Error);
}

}  // namespace
}  // namespace ddpxx::random_split_test
