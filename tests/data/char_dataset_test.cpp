#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <malloc.h>
#include <span>
#include <string>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/char_dataset.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::char_dataset_test {
namespace {

using Ids = std::vector<std::int64_t>;

Ids row(const at::Tensor& tensor_BT, std::int64_t b) {
  const auto row_T = tensor_BT.select(0, b).contiguous();
  const auto* data = row_T.const_data_ptr<std::int64_t>();
  return {data, data + row_T.numel()};
}

std::string error_of(Errc code, const CharDatasetConfig& config) {
  try {
    const CharDataset dataset{config};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << config.path << " was accepted";
  return {};
}

class CharDatasetTest : public testing::Test {
 protected:
  /// The text that the dataset reads from a path.
  std::string text_at(const std::string& path, std::int64_t max_bytes = 0) {
    const CharDataset dataset{{.path = path, .block_size = 1, .max_bytes = max_bytes}};
    std::string text;
    for (std::int64_t i = 0; i < dataset.size(); ++i)
      text += dataset.alphabet().decode(row(dataset.batch(std::array{i}).inputs, 0));
    return text + dataset.alphabet().decode(row(dataset.batch(std::array{dataset.size() - 1}).targets, 0));
  }

  TemporaryFolder folder;
};

TEST_F(CharDatasetTest, ShiftsTheTargetsByOneCharacter) {
  const CharDataset dataset{{.path = folder.file("text", "hello world"), .block_size = 4}};
  EXPECT_EQ(dataset.size(), 7);
  EXPECT_EQ(dataset.vocab_size(), 8);
  EXPECT_EQ(dataset.describe(), "Data has 11 characters, 8 unique.");
  const auto batch = dataset.batch(std::array<std::int64_t, 3>{6, 0, 6});
  EXPECT_EQ(batch.inputs.sizes(), (at::IntArrayRef{3, 4}));
  EXPECT_EQ(batch.targets.sizes(), (at::IntArrayRef{3, 4}));
  EXPECT_EQ(batch.inputs.scalar_type(), at::kLong);
  EXPECT_EQ(batch.num_tokens, 12);
  EXPECT_EQ(dataset.alphabet().decode(row(batch.inputs, 0)), "worl");
  EXPECT_EQ(dataset.alphabet().decode(row(batch.targets, 0)), "orld");
  EXPECT_EQ(dataset.alphabet().decode(row(batch.inputs, 1)), "hell");
  EXPECT_EQ(dataset.alphabet().decode(row(batch.targets, 1)), "ello");
  EXPECT_EQ(row(batch.targets, 2), row(batch.targets, 0));
}

TEST_F(CharDatasetTest, NumbersTheCharactersInTheirOrder) {
  const CharDataset dataset{{.path = folder.file("text", "b\na\xC3\xA9 \xE2\x82\xAC"), .block_size = 2}};
  EXPECT_EQ(dataset.num_chars(), 6);
  EXPECT_EQ(dataset.alphabet().encode("\n ab\xC3\xA9\xE2\x82\xAC"), (Ids{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(dataset.alphabet().decode(Ids{5, 0, 4}), "\xE2\x82\xAC\n\xC3\xA9");
}

TEST_F(CharDatasetTest, KnowsVocabulariesOfEverySize) {
  for (const char32_t count : {0x100U, 0x101U, 0x10000U, 0x10001U}) {
    std::string text;
    for (char32_t i = 1; i <= count; ++i) append_utf8(text, i < 0xD800 ? i : i + 0x800);
    const CharDataset dataset{{.path = folder.file("text", text), .block_size = 8}};
    ASSERT_EQ(dataset.vocab_size(), count);
    const std::int64_t last = dataset.size() - 1;
    EXPECT_EQ(row(dataset.batch(std::array{last}).targets, 0).back(), dataset.vocab_size() - 1);
  }
}

TEST_F(CharDatasetTest, TruncatesCharactersBeforeItCountsThem) {
  // The text has 10 characters and truncate=0.59 keeps 5 of them: `e` lies behind the cut and must not be in the
  // vocabulary.
  const CharDataset dataset{{.path = folder.file("text",
                                                 "\xC3\xA9\xC3\xA9"
                                                 "ddddeeee"),
                             .block_size = 2,
                             .truncate = 0.59}};
  EXPECT_EQ(dataset.num_chars(), 5);
  EXPECT_EQ(dataset.vocab_size(), 2);
  EXPECT_THROW(dataset.alphabet().encode("e"), Error);
}

TEST_F(CharDatasetTest, ReadsFoldersAndPatternsInTheOrderOfTheirPaths) {
  folder.file("b.txt", "2");
  folder.file("a.txt", "1");
  folder.file("a-c/x.txt", "0");  // '-' comes before '.'
  folder.file("sub/deep/z.txt", "3");
  folder.file("sub/notes.md", "4");
  EXPECT_EQ(text_at(folder.path().string()), "01234");
  EXPECT_EQ(text_at((folder / "*.txt").string()), "12");
  EXPECT_EQ(text_at((folder / "[bs]*").string()), "234");
  EXPECT_EQ(text_at(folder.file("[x].txt", "xy")), "xy");  // a file name that only looks like a pattern
}

TEST_F(CharDatasetTest, ReadsTheFirstBytesOfAllFilesTogether) {
  folder.file("a", "abc");
  folder.file("b", "de\xC3\xA9");
  folder.file("c", "f");
  const auto path = folder.path().string();
  EXPECT_EQ(text_at(path, 2), "ab");
  EXPECT_EQ(text_at(path, 5), "abcde");
  EXPECT_EQ(text_at(path, 6), "abcde");  // the cut does not split a character
  EXPECT_EQ(text_at(path, 7), "abcde\xC3\xA9");
  EXPECT_EQ(text_at(path, 100),
            "abcde\xC3\xA9"
            "f");
}

TEST_F(CharDatasetTest, JoinsCharactersThatTheBordersOfFilesCut) {
  const std::string text =
      "ab\xC3\xA9\xF0\x9F\x98\x80"
      "cd";
  const auto path = folder.path().string();
  for (std::size_t first = 0; first <= text.size(); ++first)
    for (std::size_t second = first; second <= text.size(); ++second) {
      folder.file("part.aa", text.substr(0, first));
      folder.file("part.ab", text.substr(first, second - first));
      folder.file("part.ac", text.substr(second));
      EXPECT_EQ(text_at(path), text) << first << ' ' << second;
      EXPECT_EQ(text_at(path, 6), "ab\xC3\xA9") << first << ' ' << second;
      EXPECT_EQ(text_at(path, 8), text.substr(0, 8)) << first << ' ' << second;
    }
}

TEST_F(CharDatasetTest, NamesTheFileInWhichACharacterBeginsThatDoesNotEnd) {
  const auto path = folder.path().string();
  const auto first = folder.file("part.aa", "abc\xF0");
  folder.file("part.ab", "");
  const auto third = folder.file("part.ac", "\x9F");
  const auto torn = first + " is not text: the byte at offset 3 begins no UTF-8 character";
  EXPECT_NE(error_of(Errc::data, {.path = path}).find(torn), std::string::npos);
  const auto last = folder.file("part.ad", "\x98z");
  EXPECT_NE(error_of(Errc::data, {.path = path}).find(torn), std::string::npos);
  folder.file("part.ad", "\x98\x80z\xFF");
  const auto wrong = error_of(Errc::data, {.path = path});
  EXPECT_NE(wrong.find(last + " is not text: the byte at offset 3 begins"), std::string::npos) << wrong;
  folder.file("part.ac", std::string{"\x9F\x98\x80x\0", 5});
  const auto nul = error_of(Errc::data, {.path = path});
  EXPECT_NE(nul.find(third + " is not text: the byte at offset 4 is NUL"), std::string::npos) << nul;
}

TEST_F(CharDatasetTest, SaysWhatIsWrongWithThePath) {
  const auto absent = (folder / "absent").string();
  EXPECT_NE(error_of(Errc::data, {.path = absent}).find(absent + ": No such file"), std::string::npos);
  const auto pattern = (folder / "*.txt").string();
  EXPECT_NE(error_of(Errc::data, {.path = pattern}).find("no file matches " + pattern), std::string::npos);
  EXPECT_NE(error_of(Errc::data, {.path = folder.path().string()}).find("no file below"), std::string::npos);
  const auto twice = (folder / "**/*.txt").string();
  EXPECT_NE(error_of(Errc::data, {.path = twice}).find(twice + ": ** is not supported"), std::string::npos);
  const auto empty = folder.file("empty", "");
  EXPECT_NE(error_of(Errc::data, {.path = empty}).find("no text in " + empty), std::string::npos);
  error_of(Errc::config, {.path = ""});
  const auto bucket = error_of(Errc::config, {.path = "s3://bucket/texts"});  // this program is not linked to ddpxx::s3
  EXPECT_NE(bucket.find("built without S3"), std::string::npos) << bucket;
}

/// Runs the test in a process of its own, which may give up rights or memory; the process must exit with 0.
template <class Body>
void expect_well_in_child(Body&& body) {
  const auto work = [&] {
    body();
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(work(), testing::ExitedWithCode(0), "");
}

TEST_F(CharDatasetTest, NamesTheFolderBelowThePathThatCannotBeRead) {
  folder.file("text", "some text");
  std::filesystem::create_directories(folder / "a/closed");
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  std::filesystem::permissions(folder / "a/closed", std::filesystem::perms::none);
  expect_well_in_child([&] {
    constexpr ::uid_t kNobody = 65534;
    if (::getuid() == 0 && ::setuid(kNobody) != 0) std::_Exit(2);  // root could read every file
    const auto said = error_of(Errc::data, {.path = folder.path().string()});
    EXPECT_NE(said.find("cannot read the folder " + (folder / "a/closed").string() + ": Permission denied"),
              std::string::npos)
        << said;
  });
  std::filesystem::permissions(folder / "a/closed", std::filesystem::perms::all);
}

TEST_F(CharDatasetTest, SaysThatATextDoesNotFitIntoMemory) {
  const auto large = folder.file("large", "x");
  std::filesystem::resize_file(large, std::uintmax_t{1} << 40U);  // the file is sparse: it takes no space on the disk
  expect_well_in_child([&] {
    const rlimit limit{std::uint64_t{1} << 40U, std::uint64_t{1} << 40U};
    ::setrlimit(RLIMIT_AS, &limit);
    const auto said = error_of(Errc::memory, {.path = large});
    EXPECT_NE(said.find("the text of " + large + " does not fit into memory: max_bytes=N"), std::string::npos) << said;
  });
}

TEST_F(CharDatasetTest, NamesBothNumbersWhenABlockIsLongerThanTheText) {
  const auto path = folder.file("text", std::string(20, 'x'));
  const auto text = error_of(Errc::data, {.path = path, .block_size = 20});
  EXPECT_NE(text.find("block_size=20"), std::string::npos) << text;
  const auto huge = error_of(Errc::data, {.path = path, .block_size = std::numeric_limits<std::int64_t>::max()});
  EXPECT_NE(huge.find("block_size=9223372036854775807 needs a longer text"), std::string::npos) << huge;
  EXPECT_NE(text.find("has 20"), std::string::npos) << text;
  EXPECT_EQ((CharDataset{{.path = path, .block_size = 19}}.size()), 1);
  error_of(Errc::data, {.path = path, .block_size = 1, .truncate = 0.01});  // the cut leaves no character
}

TEST_F(CharDatasetTest, RefusesSettingsOutsideTheirRange) {
  const auto path = folder.file("text", "some text");
  error_of(Errc::config, {.path = path, .block_size = 0});
  error_of(Errc::config, {.path = path, .block_size = 2, .truncate = 0.0});
  error_of(Errc::config, {.path = path, .block_size = 2, .truncate = 1.1});
  error_of(Errc::config, {.path = path, .block_size = 2, .max_bytes = -1});
}

TEST_F(CharDatasetTest, RefusesIndicesIdsAndCharactersThatItDoesNotHave) {
  const CharDataset dataset{{.path = folder.file("text", "abc"), .block_size = 1}};
  EXPECT_THROW(dataset.batch(std::array<std::int64_t, 1>{2}), Error);
  EXPECT_THROW(dataset.batch(std::array<std::int64_t, 1>{-1}), Error);
  EXPECT_THROW(dataset.alphabet().decode(Ids{3}), Error);
  EXPECT_THROW(dataset.alphabet().decode(Ids{-1}), Error);
  try {
    dataset.alphabet().encode("ab\xC3\xA9");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string{error.what()}.find("'\xC3\xA9'"), std::string::npos) << error.what();
  }
}

TEST_F(CharDatasetTest, RefusesBytesThatAreNoText) {
  using namespace std::string_literals;
  const auto nul = folder.file("a/nul.txt", "ab\0c"s), latin = folder.file("a/latin.txt", "caf\xE9 au lait");
  EXPECT_NE(error_of(Errc::data, {.path = nul}).find(nul + " is not text: the byte at offset 2 is NUL"),
            std::string::npos);
  const auto text = error_of(Errc::data, {.path = (folder / "a").string()});  // latin.txt is the first file
  EXPECT_NE(text.find(latin + " is not text: the byte at offset 3 begins no UTF-8 character"), std::string::npos)
      << text;
  for (const auto& [name, word] : {std::pair{"train.bin", "token ids"},
                                   {"w.pt", "tensors"},
                                   {"w.safetensors", "tensors"},
                                   {"x.NPY", "NumPy"},
                                   {"t.txt.gz", "unpack"}}) {
    const auto said = error_of(Errc::data, {.path = folder.file(name, "\1\0\2"s)});
    EXPECT_NE(said.find(word), std::string::npos) << said;
  }
}

TEST_F(CharDatasetTest, AcceptsTextWhateverItsNameAndACharacterThatMaxBytesCut) {
  EXPECT_EQ(text_at(folder.file("text.bin", "plain")), "plain");
  EXPECT_EQ(text_at(folder.file("cut", "ab\xC3\xA9z"), 3), "ab");
}

TEST_F(CharDatasetTest, EncodesAnotherTextInItsAlphabet) {
  const CharDataset text{{.path = folder.file("text", "hello world"), .block_size = 2}};
  const auto path = folder.file("validation", "dole");
  const CharDataset validation{{.path = path, .block_size = 2}, text.alphabet()};
  EXPECT_EQ(validation.vocab_size(), 8);
  EXPECT_EQ(row(validation.batch(std::array<std::int64_t, 1>{0}).inputs, 0), text.alphabet().encode("do"));
  try {
    const CharDataset unknown{{.path = folder.file("unknown", "dolz"), .block_size = 2}, text.alphabet()};
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::data);
    const std::string said = error.what();
    EXPECT_NE(said.find("the character 'z' does not occur in the training text"), std::string::npos) << said;
    EXPECT_NE(said.find((folder / "unknown").string()), std::string::npos) << said;
  }
}

TEST_F(CharDatasetTest, RecordsItsAlphabetAndAChecksumOfTheTextButNotItsPath) {
  const auto facts_of = [](const std::string& path) { return CharDataset{{.path = path, .block_size = 2}}.recorded(); };
  const auto facts = facts_of(folder.file("text", "b a\n"));
  ASSERT_EQ(facts.size(), 2U);
  EXPECT_EQ(facts[0].path, "the alphabet");
  EXPECT_EQ(facts[0].value, "\\n ab");
  EXPECT_EQ(facts[1].path, "the text");
  EXPECT_EQ(facts[1].value, "4 characters, CRC-32C " + crc32c_text(crc32c(std::as_bytes(std::span{"b a\n", 4}))));
  EXPECT_EQ(facts_of(folder.file("copy", "b a\n"))[1].value, facts[1].value);
  const auto others = facts_of(folder.file("other", "a b\n"));
  EXPECT_EQ(others[0].value, facts[0].value);
  EXPECT_NE(others[1].value, facts[1].value);
}

TEST(CharIds, TakeTheMemoryOfTheText) {
  const auto allocated = [] {
    const auto info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  const auto before = allocated();
  std::string text(kBytes, 'a');
  for (std::size_t i = 0; i < kBytes; i += 7) text[i] = static_cast<char>('b' + i % 20);
  const Alphabet alphabet{text};
  const CharIds ids{std::move(text), alphabet};
  EXPECT_EQ(ids.size(), static_cast<std::int64_t>(kBytes));
  EXPECT_LT(allocated() - before, kBytes + (std::size_t{1} << 20))
      << "expected one byte for each character, and no copy";
}

TEST_F(CharDatasetTest, SaysWhatIsWrongWithASecondFileOfAFolder) {
  folder.file("b/1.txt", "text");
  const auto second = folder.file("b/2.txt", "te\xFFxt");
  EXPECT_NE(error_of(Errc::data, {.path = (folder / "b").string()}).find(second + " is not text: the byte at offset 2"),
            std::string::npos);
}

}  // namespace
}  // namespace ddpxx::char_dataset_test
