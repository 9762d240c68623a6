// Whether a place of output lies among the texts that a folder stands for.
#include <filesystem>

#include <gtest/gtest.h>

#include <ddpxx/data/text_files.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::text_files_test {
namespace {

TEST(IsAmongTexts, HoldsForTheFolderAndAllBelowIt) {
  const TemporaryFolder folder;
  folder.file("texts/a.txt", "a");
  const auto texts = (folder / "texts").string();
  for (const auto* place : {"texts", "texts/", "texts/new", "texts/new/part", "other/../texts/x"})
    EXPECT_TRUE(is_among_texts((folder / place).string(), texts)) << place;
  for (const auto* place : {"", "other", "texts2", "texts/../other"})
    EXPECT_FALSE(is_among_texts((folder / place).string(), texts)) << place;
  EXPECT_FALSE(is_among_texts(texts, (folder / "texts/a.txt").string())) << "a file has nothing below it";
  std::filesystem::create_directory_symlink("texts", folder / "link");
  EXPECT_TRUE(is_among_texts((folder / "link/new").string(), texts));
}

TEST(IsAmongTexts, TakesPathsFromTheCurrentFolder) {
  const TemporaryFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  EXPECT_TRUE(is_among_texts("runs/one", ".")) << "nothing of this path is there yet";
  EXPECT_FALSE(is_among_texts("../one", "."));
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace ddpxx::text_files_test
