#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/alphabet.hpp>

namespace ddpxx::alphabet_test {
namespace {

using Ids = std::vector<std::int64_t>;

TEST(Alphabet, NumbersTheCharactersOfATextInTheirOrder) {
  const Alphabet alphabet{
      "b\na\xC3\xA9 \xE2\x82\xAC"
      "a"};
  EXPECT_EQ(alphabet.size(), 6);
  EXPECT_EQ(alphabet.encode("\n ab\xC3\xA9\xE2\x82\xAC"), (Ids{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(alphabet.decode(Ids{5, 0, 4}), "\xE2\x82\xAC\n\xC3\xA9");
  EXPECT_THROW(alphabet.encode("c"), Error);
  EXPECT_THROW(alphabet.decode(Ids{6}), Error);
}

TEST(Alphabet, IsMadeAgainFromWhatASnapshotRecords) {
  std::string
      all;  // control characters, a backslash, letters that look like an escape, characters of two to four bytes
  for (char32_t character = 1; character < 0x180; ++character) append_utf8(all, character);
  for (const char32_t character : {0x2028U, 0x20ACU, 0xFFFDU, 0x1F600U, 0x10FFFFU}) append_utf8(all, character);
  const Alphabet alphabet{all};
  const auto recorded = alphabet.recorded();
  EXPECT_EQ(recorded.resume, Resume::must_match);
  for (const auto byte : recorded.value) EXPECT_FALSE(static_cast<unsigned char>(byte) < 0x20 || byte == 0x7F);
  const auto found = Alphabet::find({{"model.n_layer", "3"}, recorded});
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, alphabet);
}

TEST(Alphabet, ShowsALineEndAndABackslashByTwoCharacters) {
  EXPECT_EQ(Alphabet{"a\\\n\t{u}"}.recorded().value, "\\u{9}\\n\\\\au{}");
}

TEST(Alphabet, IsNotFoundInASnapshotWithoutOneAndADamagedOneIsAnError) {
  EXPECT_FALSE(Alphabet::find({{"model.n_layer", "3"}}));
  for (const auto* value : {"a\\", "a\\x", "\\u{", "\\u{}", "\\u{zz}", "\\u{110000}", "\\u{12 }"})
    EXPECT_THROW(Alphabet::find({{"the alphabet", value}}), Error) << value;
}

}  // namespace
}  // namespace ddpxx::alphabet_test
