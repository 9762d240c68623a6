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
  /// A file as numpy's tofile() writes an array of uint16.
  std::string file(const std::vector<int>& ids, const std::string& behind = {}) const {
    std::string bytes;
    for (const int id : ids) {
      bytes += static_cast<char>(id & 0xFF);
      bytes += static_cast<char>(id >> 8);
    }
    return folder_.file("train.bin", bytes + behind);
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
  EXPECT_EQ(dataset.describe(), "Data has 5 tokens, of 65536 different.");
  const auto batch = dataset.batch(std::array<std::int64_t, 2>{1, 0});
  EXPECT_TRUE(at::equal(batch.inputs, torch::tensor({{256, 50256, 3}, {1, 256, 50256}}, at::kLong)));
  EXPECT_TRUE(at::equal(batch.targets, torch::tensor({{50256, 3, 65535}, {256, 50256, 3}}, at::kLong)));
  EXPECT_EQ(batch.num_tokens, 6);
  for (const std::int64_t outside : {-1, 2}) EXPECT_THROW(dataset.batch(std::array{outside}), Error);
}

TEST_F(Tokens, OfAWrongFileAreDataErrors) {
  expect_error({.path = file({1, 2, 3}, "x"), .block_size = 2, .vocab_size = 8}, "has 7 bytes, an odd number");
  expect_error({.path = file({1, 2}), .block_size = 2, .vocab_size = 8}, "has 2, and a sample takes block_size tokens");
  expect_error({.path = file({}), .block_size = 2, .vocab_size = 8}, "has 0, and a sample");
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
  const auto numbers = [](int bytes_each, std::int64_t step) {
    std::string written;
    for (std::int64_t i = 0; i < 100; ++i)
      for (int byte = 0; byte < bytes_each; ++byte) written += static_cast<char>(i * step >> (8 * byte));
    return written;
  };
  expect(numbers(4, 499), "it looks like 32-bit numbers");
  expect(numbers(8, 499), "it looks like 32-bit numbers");  // np.int64
  expect(numbers(4, 1999), "it looks like 32-bit numbers", 65536);
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
