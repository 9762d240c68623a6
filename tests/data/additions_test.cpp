#include "../../samples/projects/additions.hpp"

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

namespace additions_test {
namespace {

using Digits = std::vector<std::int64_t>;

Digits digits_of(const at::Tensor& row) {
  Digits digits;
  for (std::int64_t i = 0; i < row.numel(); ++i) digits.push_back(row[i].item<std::int64_t>());
  return digits;
}

TEST(Additions, ATextHasBothNumbersAndTheSumFromItsEnd) {
  const Additions data{{.ndigit = 2}, Additions::Part::train};
  std::int64_t checked = 0;
  for (std::int64_t sample = 0; sample < data.size(); ++sample) {
    const auto is = [&](std::int64_t a, std::int64_t b) { return data.summands(sample) == std::pair{a, b}; };
    const std::int64_t samples[] = {sample};
    if (is(85, 50)) {
      EXPECT_EQ(digits_of(data.texts(samples)[0]), (Digits{8, 5, 5, 0, 5, 3, 1}));
      const auto batch = data.batch(samples);
      EXPECT_EQ(digits_of(batch.inputs[0]), (Digits{8, 5, 5, 0, 5, 3}));
      EXPECT_EQ(digits_of(batch.targets[0]), (Digits{-1, -1, -1, 5, 3, 1}));
      EXPECT_EQ(batch.num_tokens, 3);
      ++checked;
    } else if (is(6, 39)) {
      EXPECT_EQ(digits_of(data.texts(samples)[0]), (Digits{0, 6, 3, 9, 5, 4, 0}));
      ++checked;
    }
  }
  EXPECT_EQ(checked, 2) << "the two sums are for training";
}

TEST(Additions, ThePartsTogetherAreAllSums) {
  for (const std::int64_t ndigit : {1, 2}) {
    std::set<std::pair<std::int64_t, std::int64_t>> sums;
    for (const auto part : {Additions::Part::train, Additions::Part::test}) {
      const Additions data{{.ndigit = ndigit}, part};
      for (std::int64_t sample = 0; sample < data.size(); ++sample) sums.insert(data.summands(sample));
      EXPECT_EQ(data.block_size(), 3 * ndigit);
    }
    EXPECT_EQ(sums.size(), ndigit == 1 ? 100U : 10'000U);
  }
}

}  // namespace
}  // namespace additions_test
