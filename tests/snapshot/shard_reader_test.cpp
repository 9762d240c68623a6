#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/snapshot/chunk_sums.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/shard_reader.hpp>

#include "memory_storage.hpp"

namespace ddpxx::shard_reader_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kChunk = std::uint64_t{1} << 20;
constexpr std::uint64_t kFileBytes = 10 * kChunk + 1234;
constexpr std::uint64_t kOffset = 1001;  // the offset of the tensor in each file
constexpr std::int64_t kNumel = 4 * static_cast<std::int64_t>(kChunk) + 77;

/// A tensor of int16 whose halves lie in two files with eleven chunks each.
class ShardReading : public testing::Test {
 protected:
  ShardReading() {
    auto& tensor = manifest_.tensors["x"];
    tensor = {at::kShort, {2, kNumel}, {}};
    for (const std::size_t file : {std::size_t{0}, std::size_t{1}}) {
      std::string content(kFileBytes, '\0');
      for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>((i * 2654435761U) >> 11U);
      const auto part = numbers(static_cast<std::int64_t>(file) * kNumel, kNumel);
      std::memcpy(content.data() + kOffset, part.const_data_ptr(), part.nbytes());
      ChunkSums sums{kChunk};
      sums.add(bytes_of(content));
      manifest_.files.push_back({names_[file], content.size(), kChunk, sums.finish()});
      const auto begin = static_cast<std::int64_t>(file) * kNumel;
      tensor.parts.push_back({file, begin, begin + kNumel, kOffset});
      storage_.objects["step/" + names_[file]] = std::move(content);
    }
  }

  static at::Tensor numbers(std::int64_t begin, std::int64_t count) {
    return at::arange(begin, begin + count, at::kLong).remainder(32749).to(at::kShort);
  }
  static StateSlice slice(std::int64_t begin, std::int64_t count) {
    return {"x", {2, kNumel}, begin, at::zeros({count}, at::kShort)};
  }
  /// A slice whose elements are not contiguous, so that the reader cannot read into it directly, as on another device.
  static StateSlice far_slice(std::int64_t begin, std::int64_t count) {
    return {"x", {2, kNumel}, begin, at::zeros({count, 2}, at::kShort).select(1, 0)};
  }
  static void expect_read(const std::vector<StateSlice>& slices) {
    for (const auto& each : slices)
      EXPECT_TRUE(at::equal(each.values, numbers(each.begin, each.values.numel()))) << each.begin;
  }
  /// The first element that lies completely in this chunk of the first file.
  static std::int64_t first_in(std::uint64_t chunk) {
    return static_cast<std::int64_t>((chunk * kChunk - kOffset + 1) / 2);
  }
  ReadRange chunks(std::size_t file, std::uint64_t begin, std::uint64_t end) const {
    return {"step/" + names_[file], begin * kChunk, std::min(end * kChunk, kFileBytes)};
  }
  ShardReader reader(ReadSizes sizes = {}) { return {storage_, "step/", manifest_, sizes}; }
  void flip(std::size_t file, std::uint64_t byte) {
    auto& flipped = storage_.objects["step/" + names_[file]][byte];
    flipped = static_cast<char>(flipped ^ 1);
  }

  const std::vector<std::string> names_{"rank-0", "rank-1"};
  Manifest manifest_;
  MemoryStorage storage_;
};

TEST_F(ShardReading, TouchesTheChunksThatAreWantedAndNoOthers) {
  const std::vector<StateSlice> slices{
      slice(first_in(6) + 5, 10),  // within one chunk
      slice(first_in(3) - 1, 2),   // the end of a chunk and the begin of the next one
      slice(first_in(3) + 100, static_cast<std::int64_t>(kChunk / 2)),  // continues in that chunk and the one after it
      slice(kNumel - 3, 6),  // the end of one file and the begin of the other
      slice(5, 0)};
  EXPECT_EQ(reader().read(slices), std::nullopt);
  expect_read(slices);
  EXPECT_THAT(storage_.reads(), ElementsAre(chunks(0, 2, 5), chunks(0, 6, 7), chunks(0, 8, 9), chunks(1, 0, 1)));
}

TEST_F(ShardReading, ReadsLongRunsInPiecesSeveralAtATime) {
  storage_.pause = std::chrono::milliseconds{30};
  const std::vector<StateSlice> slices{slice(0, 2 * kNumel)};
  EXPECT_EQ(reader({.piece = 2 * kChunk + 5}).read(slices), std::nullopt);
  expect_read(slices);
  EXPECT_THAT(storage_.reads(),
              ElementsAre(chunks(0, 0, 2), chunks(0, 2, 4), chunks(0, 4, 6), chunks(0, 6, 8), chunks(0, 8, 9),
                          chunks(1, 0, 2), chunks(1, 2, 4), chunks(1, 4, 6), chunks(1, 6, 8), chunks(1, 8, 9)));
  EXPECT_GT(storage_.most_at_once(), 1U) << "several pieces must be read at a time";
  EXPECT_LE(storage_.most_at_once(), 4U) << "the number of pieces in memory must be bounded";
}

TEST_F(ShardReading, ReadsForAnotherDeviceInBatches) {
  const std::vector<StateSlice> slices{far_slice(3, kNumel), far_slice(kNumel + 3, 1000), slice(kNumel, 3),
                                       far_slice(kNumel + 1003, kNumel - 1003)};
  EXPECT_EQ(reader({.on_host = 2 * kChunk}).read(slices), std::nullopt);
  expect_read(slices);
  for (const auto& [name, begin, end] : storage_.reads())
    EXPECT_LE(end - begin, 3 * kChunk) << "a batch may read two chunks, and the rest of chunks that it needs in part";
  EXPECT_GE(storage_.reads().size(), 9U);
}

TEST_F(ShardReading, VerifiesEveryByte) {
  EXPECT_EQ(reader().verify(), std::nullopt);
  EXPECT_THAT(storage_.reads(), ElementsAre(chunks(0, 0, 11), chunks(1, 0, 11)));
  flip(1, kFileBytes - 1);
  EXPECT_THAT(reader().verify().value_or(""),
              HasSubstr("step/rank-1 is damaged between its bytes 10485760 and 10486994"));
}

TEST_F(ShardReading, FindsDamageOnlyInTheChunksThatItReads) {
  flip(0, 5 * kChunk + 17);
  EXPECT_EQ(reader().read(std::vector{slice(0, first_in(5) - 1), slice(first_in(6), 1000)}), std::nullopt);
  for (const auto& far : {false, true}) {
    const auto damage = reader().read(std::vector{far ? far_slice(first_in(5) - 1, 2) : slice(first_in(5) - 1, 2)});
    EXPECT_THAT(damage.value_or(""), HasSubstr("memory/step/rank-0 is damaged between its bytes 5242880 and 6291456"));
  }
}

TEST_F(ShardReading, ReadsAChunkOnceMoreBeforeItIsCalledDamaged) {
  storage_.flip_once["step/rank-0"] = 5 * kChunk + 17;
  const std::vector<StateSlice> slices{slice(0, kNumel)};
  EXPECT_EQ(reader().read(slices), std::nullopt);
  expect_read(slices);
  EXPECT_THAT(storage_.reads(), ElementsAre(chunks(0, 0, 9), chunks(0, 5, 6)));
}

TEST_F(ShardReading, ThatFailsInTheMiddleIsAnErrorAndCanBeTriedAgain) {
  storage_.pause = std::chrono::milliseconds{5};
  auto reader = this->reader({.piece = kChunk});
  const auto whole = storage_.objects["step/rank-0"];
  storage_.put("step/rank-0", whole.substr(0, 3 * kChunk));
  const std::vector<StateSlice> slices{slice(0, 2 * kNumel)};
  EXPECT_THROW(reader.read(slices), Error);
  storage_.put("step/rank-0", whole);  // while pieces of the first read are still pending
  EXPECT_EQ(reader.read(slices), std::nullopt);
  expect_read(slices);
}

}  // namespace
}  // namespace ddpxx::shard_reader_test
