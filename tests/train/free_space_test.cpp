// A run warns at its start where there is no space for its snapshots.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/storage/folder.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../snapshot/memory_storage.hpp"
#include "../temporary_folder.hpp"
#include "training_run.hpp"

namespace ddpxx::free_space_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class FreeSpace : public testing::Test {
 protected:
  /// Trains one step more with `space` bytes in the place of the snapshots, and returns what is logged.
  std::string log_with(std::optional<std::uint64_t> space) {
    std::string lines;
    set_log_sink([&](const LogLine& line) { (lines += line.text) += '\n'; });
    storage_->space = space;
    Group alone;
    using Train = Trainer<GPT, Tokens>;
    Train::Config config;
    config.training = {.max_steps = ++steps_, .max_epochs = 0, .save_dir = (folder_ / "run").string()};
    const auto model = std::make_shared<GPT>(GPTConfig{.n_layer = 1, .n_head = 2, .n_embd = 8}, 11, 8);
    Train trainer{alone, model, std::make_shared<const Tokens>(), config, {}, {.storage = storage_}};
    trainer.fit();
    set_log_sink({});
    return lines;
  }

 private:
  TemporaryFolder folder_;
  std::shared_ptr<MemoryStorage> storage_ = std::make_shared<MemoryStorage>();
  std::int64_t steps_ = 0;
};

TEST_F(FreeSpace, IsComparedWithTheSnapshotsThatARunKeeps) {
  // 1,128 parameters in float32, as values and as two moments.
  EXPECT_THAT(log_with(40'000), AllOf(HasSubstr("has 39.1 KiB free, a snapshot takes 13.2 KiB"),
                                      HasSubstr("and there may be 3 more of them during a save"),
                                      HasSubstr("choose another training.save_dir")));
}

TEST_F(FreeSpace, IsEnoughForOneMoreSnapshotWhereTheOthersExist) {
  EXPECT_EQ(log_with(60'000), "") << "there is space for three";
  EXPECT_THAT(log_with(20'000), HasSubstr("there may be 2 more of them"));
  EXPECT_THAT(log_with(20'000), testing::Not(HasSubstr("free"))) << "the two that are kept exist";
  EXPECT_THAT(log_with(10'000), AllOf(HasSubstr("free, a snapshot takes"), testing::Not(HasSubstr("there may be"))));
}

TEST_F(FreeSpace, IsNotComparedWhereItIsNotKnown) { EXPECT_EQ(log_with(std::nullopt), ""); }

TEST(FreeSpaceOfAFolder, IsThatOfItsFileSystem) {
  const TemporaryFolder folder;
  const auto free = Folder{folder / "."}.free_bytes();
  ASSERT_TRUE(free);
  const auto space = std::filesystem::space(folder / ".");
  EXPECT_GT(*free, 0U);
  EXPECT_LE(*free, space.capacity);
  EXPECT_FALSE(Folder{folder / "not-there"}.free_bytes());
}

}  // namespace
}  // namespace ddpxx::free_space_test
