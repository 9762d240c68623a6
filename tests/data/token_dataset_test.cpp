#include <array>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/held_out_text.hpp>
#include <ddpxx/data/token_dataset.hpp>

#include "../error_of.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::token_dataset_test {
namespace {

class Tokens : public testing::Test {
 protected:
  /// The bytes of numbers in little-endian order, as numpy's tofile() writes an array of them.
  static std::string numbers(const std::vector<int>& ids, int bytes_each) {
    std::string bytes;
    for (const int id : ids)
      for (int byte = 0; byte < bytes_each; ++byte) bytes += static_cast<char>(std::int64_t{id} >> (8 * byte));
    return bytes;
  }
  /// `count` numbers that have a distance of `step`, from 0 on.
  static std::vector<int> every(int step, int count) {
    std::vector<int> ids;
    for (int i = 0; i < count; ++i) ids.push_back(i * step);
    return ids;
  }
  /// The header that llm.c's data/data_common.py writes in front of this many tokens.
  static std::string header(int num_tokens, int magic, int version) {
    auto bytes = numbers({magic, version, num_tokens}, 4);
    bytes.resize(1024);
    return bytes;
  }
  /// A file of 16-bit ids.
  std::string file(const std::vector<int>& ids, const std::string& behind = {}) const {
    return folder_.file("train.bin", numbers(ids, 2) + behind);
  }
  static void expect_error(const TokenDatasetConfig& config, const std::string& sentence) {
    try {
      const TokenDataset dataset{config};
      ADD_FAILURE() << "the file was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::data);
      EXPECT_NE(std::string{error.what()}.find(sentence), std::string::npos) << error.what();
    }
  }

  TemporaryFolder folder_;
};

TEST_F(Tokens, AreReadAsUnsignedNumbersAndShiftedByOne) {
  const TokenDataset dataset{{.path = file({1, 256, 50256, 3, 65535}), .block_size = 3, .vocab_size = 65536}};
  EXPECT_EQ(dataset.size(), 2);
  EXPECT_EQ(dataset.num_tokens(), 5);
  EXPECT_EQ(dataset.describe(), "Data has 5 tokens; vocab_size is 65536.");
  const auto batch = dataset.batch(std::array<std::int64_t, 2>{1, 0});
  EXPECT_TRUE(at::equal(batch.inputs, torch::tensor({{256, 50256, 3}, {1, 256, 50256}}, at::kLong)));
  EXPECT_TRUE(at::equal(batch.targets, torch::tensor({{50256, 3, 65535}, {256, 50256, 3}}, at::kLong)));
  EXPECT_EQ(batch.num_tokens, 6);
  for (const std::int64_t outside : {-1, 2}) EXPECT_THROW(dataset.batch(std::array{outside}), Error);
}

TEST_F(Tokens, OfAWrongFileAreDataErrors) {
  expect_error({.path = file({1, 2, 3}, "x"), .block_size = 2, .vocab_size = 8},
               "has 7 bytes, which is no multiple of 2");
  expect_error(
      {.path = file({1, 2, 3}), .block_size = 2, .vocab_size = 65537},
      "has 6 bytes, which is no multiple of 4: it is not a file of 32-bit tokens, or it was cut off; files of at "
      "most 65536 different tokens have 16-bit ids");
  expect_error({.path = file({1, 2}), .block_size = 2, .vocab_size = 8}, "has 2, and a sample takes block_size tokens");
  expect_error({.path = file({}), .block_size = 2, .vocab_size = 8}, " holds no tokens: write it again");
  expect_error({.path = file({1, 2, 8, 3}), .block_size = 2, .vocab_size = 8}, "token 2 of ");
  expect_error({.path = (folder_ / "none").string(), .block_size = 2}, "none");
}

TEST_F(Tokens, OfSamplesWithoutALengthAreAnErrorOfTheConfig) {
  for (const std::int64_t length : {0, -1}) {
    const TokenDatasetConfig config{.path = file({1, 2, 3}), .block_size = length, .vocab_size = 8};
    EXPECT_EQ(code_of([&] { const TokenDataset dataset{config}; }), Errc::config) << length;
  }
}

TEST_F(Tokens, AreNotWhatFilesOfOtherFormatsHold) {
  const auto expect = [&](const std::string& bytes, const std::string& sentence, std::int64_t vocab_size = 50304) {
    expect_error({.path = folder_.file("other", bytes), .block_size = 2, .vocab_size = vocab_size}, sentence);
  };
  expect("\x93NUMPY\x01" + std::string(1, '\0') + "v{'descr': '<u2'} ", "is a NumPy file with a header");
  std::string text = "some words in caf\xC3\xA9s ";
  while (text.size() < 4'000'000) text += text;
  for (const std::size_t cut : {0U, 7U})  // 7: the checked part ends within a character
    expect(std::string(cut, 'x') + text + std::string(cut, 'x'), "it holds text: make tokens of it with");
  const auto ids = every(499, 100);
  expect(numbers(ids, 4), "it looks like 32-bit numbers");
  expect(numbers(ids, 4), "set vocab_size, which is 50304, to the number of tokens of the tokenizer");
  expect(numbers(ids, 8),
         "it looks like 64-bit numbers, since every second 32-bit number is 0: write the tokens as "
         "16-bit numbers, by array.astype(numpy.uint16)");  // np.int64
  expect(numbers(every(1999, 100), 4), "it looks like 32-bit numbers", 65536);
}

TEST_F(Tokens, AreNotWhatFilesOfOtherFormatsHoldWhereTheyHave32Bits) {
  constexpr std::int64_t kTokens = 128256;
  const auto expect = [&](const std::string& bytes, const std::string& sentence) {
    expect_error({.path = folder_.file("other", bytes), .block_size = 2, .vocab_size = kTokens}, sentence);
  };
  expect("\x93NUMPY\x01" + std::string(1, '\0') + "v{'descr': '<u4'} ", "by array.astype(numpy.uint32).tofile");
  for (int letters = 200; letters < 204; ++letters)  // whatever the rest of the length by 4
    expect(std::string(static_cast<std::size_t>(letters), 'a'), "is not a file of 32-bit tokens: it holds text");
  for (const int count : {100, 101})
    expect(numbers(every(499, count), 2),
           "it looks like 16-bit numbers, since most of its 32-bit numbers are no ids of any "
           "tokenizer; files of at most 65536 different tokens have 16-bit ids");
  std::vector<int> characters;  // of a small alphabet
  for (int i = 0; i < 100; ++i) characters.push_back(i * 7 % 65);
  expect(numbers(characters, 2), "it looks like 16-bit numbers");
  expect(numbers(every(1000, 100), 8), "it looks like 64-bit numbers");
  expect(numbers({1, kTokens, 2}, 4), "token 1 of ");
  expect(numbers(every(kTokens / 50, 100), 4), " has the ids below that: set the number of tokens of the tokenizer");
  expect(numbers({1, -1, 2}, 4), " is 4294967295, and vocab_size=128256 has the ids below that");
}

TEST_F(Tokens, OfMoreThan65536KindsAreReadAs32BitNumbers) {
  const auto ids = every(1277, 100);
  const TokenDataset dataset{
      {.path = folder_.file("train.bin", numbers(ids, 4)), .block_size = 70, .vocab_size = 128256}};
  EXPECT_EQ(dataset.describe(), "Data has 100 tokens; vocab_size is 128256.");
  const auto batch = dataset.batch(std::array<std::int64_t, 2>{29, 0});
  const auto expected = torch::tensor(ids, at::kLong);
  EXPECT_TRUE(at::equal(batch.inputs, at::stack({expected.narrow(0, 29, 70), expected.narrow(0, 0, 70)})));
  EXPECT_TRUE(at::equal(batch.targets, at::stack({expected.narrow(0, 30, 70), expected.narrow(0, 1, 70)})));
}

TEST_F(Tokens, OfSeveralFilesAreOneSequence) {
  folder_.file("d/train_2.bin", numbers({5, 6, 7}, 2));
  folder_.file("d/train_10.bin", numbers({3}, 2));
  folder_.file("d/train_1.bin", numbers({0, 1, 2}, 2));
  folder_.file("d/notes.txt", "The files with the ending .bin hold tokens.");
  const auto expected = torch::tensor({0, 1, 2, 3, 5, 6, 7}, at::kLong);
  for (const auto& path : {folder_ / "d", folder_ / "d/train_*.bin", folder_ / "?/train*"}) {
    const TokenDataset dataset{{.path = path.string(), .block_size = 4, .vocab_size = 8}};
    EXPECT_EQ(dataset.describe(), "Data has 7 tokens in 3 files; vocab_size is 8.");
    ASSERT_EQ(dataset.size(), 3);
    for (std::int64_t i = 0; i < dataset.size(); ++i) {
      const auto batch = dataset.batch(std::array{i});
      EXPECT_TRUE(at::equal(batch.inputs[0], expected.narrow(0, i, 4))) << path << ' ' << i;
      EXPECT_TRUE(at::equal(batch.targets[0], expected.narrow(0, i + 1, 4))) << path << ' ' << i;
    }
  }
  const auto recorded = [&] {
    return TokenDataset{{.path = (folder_ / "d").string(), .block_size = 4, .vocab_size = 9}}.recorded().front().value;
  };
  const auto before = recorded();
  EXPECT_EQ(before.find("7 tokens in 3 files, CRC-32C of both ends "), 0U) << before;
  folder_.file("d/train_10.bin", numbers({4}, 2));
  EXPECT_NE(recorded(), before) << "a file in the middle has other tokens";
  folder_.file("d/train_10.bin", numbers({9}, 2));
  expect_error({.path = (folder_ / "d").string(), .block_size = 4, .vocab_size = 9},
               "token 0 of " + (folder_ / "d/train_10.bin").string());
  folder_.file("d/train_10.bin", "");
  expect_error({.path = (folder_ / "d").string(), .block_size = 4, .vocab_size = 9},
               (folder_ / "d/train_10.bin").string() + " holds no tokens");
  folder_.file("texts/notes.txt", "words");
  expect_error({.path = (folder_ / "texts").string()}, "no file with the ending .bin below ");
  expect_error({.path = (folder_ / "d/val*").string()}, "no file matches ");
}

TEST_F(Tokens, MayStandBehindTheHeaderOfLlmC) {
  const std::vector<int> ids{7, 8, 9};
  const auto expect = [&](const std::string& bytes, std::int64_t vocab_size) {
    const TokenDataset dataset{{.path = folder_.file("t.bin", bytes), .block_size = 2, .vocab_size = vocab_size}};
    EXPECT_EQ(dataset.num_tokens(), 3);
    EXPECT_TRUE(at::equal(dataset.batch(std::array<std::int64_t, 1>{0}).targets[0], torch::tensor({8, 9}, at::kLong)));
  };
  constexpr std::int64_t kShort = 50304, kLong = 128256;
  const auto of_gpt2 = header(3, 20240520, 1) + numbers(ids, 2), of_llama = header(3, 20240801, 7) + numbers(ids, 4);
  expect(of_gpt2, kShort);
  expect(of_llama, kLong);
  const auto refuse = [&](const std::string& bytes, std::int64_t vocab_size, const std::string& sentence) {
    expect_error({.path = folder_.file("t.bin", bytes), .block_size = 2, .vocab_size = vocab_size}, sentence);
  };
  refuse(of_gpt2, kLong, "begins with a header of llm.c for 16-bit ids; files of at most 65536 different tokens have");
  refuse(of_llama, kShort,
         "begins with a header of llm.c for 32-bit ids; files of at most 65536 different tokens have");
  refuse(of_gpt2.substr(0, 1029), kShort, "for 3 tokens of 2 bytes, and 5 bytes follow: the file was cut off");
  for (const std::size_t size : {4U, 500U})
    refuse(of_gpt2.substr(0, size), kShort, "a header of llm.c that is cut off: it has " + std::to_string(size));
  refuse(header(-1, 20240801, 7), kLong, "for -1 tokens of 4 bytes, and 0 bytes follow");
  refuse(header(3, 20240520, 2) + numbers(ids, 2), kShort, "begins with a header of llm.c of version 2, which is not");
}

TEST_F(Tokens, OfFewKindsOrOfAShortFileAreAccepted) {
  const auto accept = [&](const std::vector<int>& ids, std::int64_t vocab_size) {
    EXPECT_NO_THROW(TokenDataset({.path = file(ids), .block_size = 2, .vocab_size = vocab_size}));
  };
  accept({0x6161, 0x6262, 0x6363}, 50304);  // the bytes of "aabbcc"
  accept({7, 0, 9, 0}, 16);
  std::vector<int> few, zero(100, 0), rare(100, 0), bits;
  for (int i = 0; i < 100; ++i) {
    few.push_back(i % 3);
    bits.push_back(i % 2 == 0 ? 20 + i : i / 2 % 2);  // each number is followed by 0 or 1
  }
  rare[4] = rare[8] = 11;
  accept(few, 50304);
  accept(zero, 50304);
  accept(rare, 16);
  accept(bits, 128);
}

TEST_F(Tokens, InTheMiddleOfALargeFileAreCheckedWhenTheyAreRead) {
  std::vector<int> ids(3'000'000, 7);
  ids[1'500'000] = 9;
  const TokenDataset dataset{{.path = file(ids), .block_size = 2, .vocab_size = 9}};
  EXPECT_NO_THROW(dataset.batch(std::array<std::int64_t, 1>{0}));
  try {
    dataset.batch(std::array<std::int64_t, 1>{1'499'999});
    FAIL() << "an id beyond the vocabulary was read";
  } catch (const Error& error) {
    EXPECT_NE(std::string{error.what()}.find("token 1500000 of "), std::string::npos) << error.what();
    EXPECT_NE(std::string{error.what()}.find(" is 9, and vocab_size=9"), std::string::npos) << error.what();
  }
}

TEST_F(Tokens, AreReadAndCheckedAtEachPlaceOfALongSample) {
  constexpr std::int64_t kWrong = 1'500'000, kBlock = 100;
  std::vector<int> ids(2 * kWrong);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int>(i * 7919 % 65000);
  ids[kWrong] = 65001;
  const TokenDataset dataset{{.path = file(ids), .block_size = kBlock, .vocab_size = 65001}};
  const auto expected = torch::tensor(ids, at::kLong);
  for (const auto index : {kWrong - kBlock - 1, kWrong + 1}) {
    const auto batch = dataset.batch(std::array{index});
    EXPECT_TRUE(at::equal(batch.inputs[0], expected.narrow(0, index, kBlock)));
    EXPECT_TRUE(at::equal(batch.targets[0], expected.narrow(0, index + 1, kBlock)));
  }
  for (auto index = kWrong - kBlock; index <= kWrong; ++index) {
    try {
      dataset.batch(std::array{index});
      ADD_FAILURE() << "an id beyond the vocabulary was read by sample " << index;
    } catch (const Error& error) {
      EXPECT_NE(std::string{error.what()}.find("token 1500000 of "), std::string::npos) << error.what();
    }
  }
}

TEST_F(Tokens, AreRecordedByTheirNumberAndAChecksum) {
  const auto recorded = [&](const std::vector<int>& ids) {
    return TokenDataset{{.path = file(ids), .block_size = 1, .vocab_size = 9}}.recorded().front().value;
  };
  const auto first = recorded({1, 2, 3});
  EXPECT_EQ(first, "3 tokens, CRC-32C of both ends 36a587be") << "snapshots have recorded this text";
  EXPECT_EQ(recorded({1, 2, 3}), first);
  EXPECT_NE(recorded({1, 2, 4}), first);
  EXPECT_NE(recorded({1, 2, 3, 1}), first);
}

TEST_F(Tokens, AreHeldOutAsTextIs) {
  const auto data = std::make_shared<const TokenDataset>(
      TokenDatasetConfig{.path = file({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), .block_size = 2, .vocab_size = 10});
  const auto parts = hold_out_tail(data, 0.5);
  EXPECT_EQ(parts.train->size(), 3);
  ASSERT_EQ(parts.validation->size(), 2);
  EXPECT_TRUE(at::equal(parts.validation->batch(std::array<std::int64_t, 2>{0, 1}).inputs,
                        torch::tensor({{5, 6}, {7, 8}}, at::kLong)));
  EXPECT_EQ(hold_out_text(data, data).train->size(), 8);
  const auto other = std::make_shared<const TokenDataset>(
      TokenDatasetConfig{.path = file({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), .block_size = 2, .vocab_size = 11});
  EXPECT_THROW(hold_out_text(data, other), Error);
}

}  // namespace
}  // namespace ddpxx::token_dataset_test
