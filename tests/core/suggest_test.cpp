#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/core/suggest.hpp>

namespace ddpxx::suggest_test {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsReplacementsAndSwaps) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("seed", "seed"), 0U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("laeyr", "layer"), 1U);
  EXPECT_EQ(edit_distance("optimzer", "optimizer"), 1U);
  EXPECT_EQ(edit_distance("ab", "ba"), 1U);
}

struct Guess {
  std::string word;
  std::string meant;  // empty: no word is close enough
};

class Nearest : public testing::TestWithParam<Guess> {};

TEST_P(Nearest, FindsWhatWasMeant) {
  const std::vector<std::string> names{"learning_rate", "weight_decay", "max_epochs", "max_steps",
                                       "batch_size",    "seed",         "n_layer",    "save_dir"};
  EXPECT_EQ(nearest(GetParam().word, names).value_or(""), GetParam().meant);
}

INSTANTIATE_TEST_SUITE_P(Words, Nearest,
                         testing::Values(Guess{"learning_rat", "learning_rate"},
                                         Guess{"learnign_rate", "learning_rate"},
                                         Guess{"Learning-Rate", "learning_rate"}, Guess{"lr", "learning_rate"},
                                         Guess{"wd", "weight_decay"}, Guess{"epochs", "max_epochs"},
                                         Guess{"batch", "batch_size"}, Guess{"sede", "seed"},
                                         Guess{"n_layers", "n_layer"}, Guess{"max_step", "max_steps"}, Guess{"z", ""},
                                         Guess{"", ""}, Guess{"momentum", ""}, Guess{"rat", ""}));

TEST(NearestName, OfEquallyNearOnesIsTheFirst) {
  const std::vector<std::string> names{"beta1", "beta2"};
  EXPECT_EQ(nearest("beta", names).value_or(""), "beta1");
}

TEST(NearestName, HasSomethingInCommon) {
  const std::vector<std::string> names{"x", "ab"};
  EXPECT_FALSE(nearest("z", names).has_value());
}

TEST(NearestName, OfNoCandidatesIsNone) { EXPECT_FALSE(nearest("seed", {}).has_value()); }

}  // namespace
}  // namespace ddpxx::suggest_test
