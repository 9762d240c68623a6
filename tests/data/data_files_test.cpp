// Which files a path names.
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/data/data_files.hpp>

#include "../error_of.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::data_files_test {
namespace {

using Files = std::vector<std::string>;

TEST(FindDataFiles, TakesFromFoldersTheFilesWithTheEnding) {
  const TemporaryFolder folder;
  const auto second = folder.file("d/b/2.bin", ""), first = folder.file("d/10.bin", ""),
             notes = folder.file("d/a.txt", "");
  const auto below = (folder / "d").string();
  EXPECT_EQ(find_data_files(below, ".bin"), (Files{first, second}));
  EXPECT_EQ(find_data_files(below), (Files{first, notes, second}));
  EXPECT_EQ(find_data_files((folder / "?").string(), ".bin"), (Files{first, second})) << "the pattern names a folder";
  EXPECT_EQ(find_data_files((folder / "d/*.txt").string(), ".bin"), Files{notes})
      << "the pattern names the file itself";
  EXPECT_EQ(find_data_files(notes, ".bin"), Files{notes});
  EXPECT_THROW(find_data_files(below, ".npy"), Error);
  std::filesystem::create_symlink(folder / "gone.bin", folder / "d/3.bin");
  std::filesystem::create_symlink("user@host.12:34", folder / "d/.#10.bin");  // a lock of Emacs
  EXPECT_EQ(find_data_files(below, ".bin"), (Files{first, below + "/3.bin", second})) << "a file would be left out";
}

TEST(FindDataFiles, SaysThatNoShellHasReplacedATilde) {
  EXPECT_THAT(error_of([] { find_data_files("~/data"); }), testing::HasSubstr("write $HOME/data as an argument"));
}

}  // namespace
}  // namespace ddpxx::data_files_test
