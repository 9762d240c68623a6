#include <sstream>
#include <string>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/interop/checkpoint_file.hpp>
#include <ddpxx/storage/folder.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::checkpoint_file_test {
namespace {

TEST(CheckpointFiles, ComeBackFromTheirStorageAndSayWhereTheyAre) {
  const TemporaryFolder place;
  Folder folder{place / "checkpoints"};
  std::ostringstream printed;
  CheckpointFiles files{folder, printed};
  files.save_checkpoint(7, {{"weight", at::arange(3, at::kFloat)}}, PickleDict{}.add("state", PickleDict{}),
                        "epoch_7.pt");
  EXPECT_EQ(printed.str(), "Checkpoint saved to " + (place / "checkpoints" / "epoch_7.pt").string() + "\n");
  const auto loaded = files.load_checkpoint("epoch_7.pt");
  EXPECT_EQ(loaded.layout, CheckpointLayout::guide);
  EXPECT_EQ(loaded.epoch, 7);
  EXPECT_TRUE(at::equal(loaded.model.at("weight"), at::arange(3, at::kFloat)));
  EXPECT_FALSE(loaded.optimizer.is_none());
}

TEST(CheckpointFiles, NameTheFileThatCannotBeLoaded) {
  const TemporaryFolder place;
  Folder folder{place.path()};
  CheckpointFiles files{folder};
  place.file("rubbish.pt", "rubbish");
  place.file("number.pt", pack_pt(1));
  for (const char* name : {"none.pt", "rubbish.pt", "number.pt"}) {
    try {
      files.load_checkpoint(name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::storage);
      EXPECT_THAT(error.what(), testing::HasSubstr((place / name).string()));
    }
  }
}

}  // namespace
}  // namespace ddpxx::checkpoint_file_test
