#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/held_out_text.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::held_out_text_test {
namespace {

using Windows = std::vector<std::string>;

class HeldOutText : public testing::Test {
 protected:
  std::shared_ptr<const CharDataset> text(const std::string& content, std::int64_t block_size) const {
    return std::make_shared<const CharDataset>(
        CharDatasetConfig{.path = folder_.file("text", content), .block_size = block_size});
  }
  /// Each sample with its last target: all characters that the sample uses.
  static Windows windows(const std::shared_ptr<const Subset<CharDataset>>& part) {
    Windows windows;
    for (std::int64_t i = 0; part && i < part->size(); ++i) {
      const auto batch = part->batch(std::array{i});
      const auto length = static_cast<std::size_t>(batch.inputs.numel());
      const auto& alphabet = part->dataset().alphabet();
      windows.push_back(alphabet.decode({batch.inputs.const_data_ptr<std::int64_t>(), length}) +
                        alphabet.decode({batch.targets.const_data_ptr<std::int64_t>() + length - 1, 1}));
    }
    return windows;
  }

  TemporaryFolder folder_;
};

TEST_F(HeldOutText, TheTailIsInNoTrainingWindowAndItsWindowsPredictEachCharacterOnce) {
  const auto parts = hold_out_tail(text("abcdefghijklmnopqrst", 3), 0.5);
  EXPECT_EQ(windows(parts.train), (Windows{"abcd", "bcde", "cdef", "defg", "efgh", "fghi", "ghij"}));
  EXPECT_EQ(windows(parts.validation), (Windows{"klmn", "nopq", "qrst"}));
}

TEST_F(HeldOutText, ATailTooShortForAWindowIsNotEvaluated) {
  EXPECT_EQ(hold_out_tail(text("abcdefghij", 3), 0.7).validation, nullptr);
  EXPECT_EQ(windows(hold_out_tail(text("abcdefghij", 3), 0.6).validation), (Windows{"ghij"}));
  const auto all = hold_out_tail(text("abcdefghij", 3), 1.0);
  EXPECT_EQ(all.train->size(), 7);
  EXPECT_EQ(all.validation, nullptr);
}

TEST_F(HeldOutText, RefusesATrainingPartWithoutAWindowAndAnInvalidFraction) {
  try {
    hold_out_tail(text("abcdefghij", 5), 0.5);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::data);
    EXPECT_NE(std::string{error.what()}.find("has 5 of all 10 characters"), std::string::npos) << error.what();
  }
  for (const auto share : {0.0, -0.1, 1.1, 0.0 / 0.0}) {
    EXPECT_THROW(hold_out_tail(text("abcdefghij", 3), share), Error);
    EXPECT_THROW(hold_out_random(text("abcdefghij", 3), share, 0), Error);
  }
}

TEST_F(HeldOutText, AnotherTextIsEvaluatedInTheAlphabetOfTheTrainingText) {
  const auto train = text("abcdefghij", 3);
  const CharDatasetConfig config{.path = folder_.file("validation", "jihgfedc"), .block_size = 3};
  const auto parts = hold_out_text(train, std::make_shared<const CharDataset>(config, train->alphabet()));
  EXPECT_EQ(parts.train->size(), 7) << "all of the text is used for training";
  EXPECT_EQ(windows(parts.validation), (Windows{"jihg", "gfed"}));
  EXPECT_THROW(hold_out_text(train, std::make_shared<const CharDataset>(config)), Error);
}

TEST_F(HeldOutText, ARandomSplitIsThatOfMinGPTDdp) {
  const auto data = text("abcdefghijklmn", 4);  // 10 windows
  const auto parts = hold_out_random(data, 0.7, 0);
  const Subset expected{data, random_split({7, 3}, 0)[1]};
  EXPECT_EQ(parts.train->size(), 7);
  EXPECT_EQ(windows(parts.validation), windows(std::make_shared<const Subset<CharDataset>>(expected)));
  EXPECT_EQ(hold_out_random(data, 1.0, 0).validation, nullptr);
}

TEST_F(HeldOutText, KeepsWhatTheTextRecords) {
  const auto data = text("abcdefghijklmn", 4);
  const auto parts = hold_out_tail(data, 0.5);
  ASSERT_EQ(parts.train->recorded().size(), 3U);  // and which windows the part has
  EXPECT_EQ(parts.train->recorded()[1].value, data->recorded()[1].value);
}

}  // namespace
}  // namespace ddpxx::held_out_text_test
