#include <gtest/gtest.h>

#include <ddpxx/core/file.hpp>
#include <ddpxx/core/mapped_file.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx {
namespace {

TEST(MappedFile, IsTheFilesContentAndNeverWritesBack) {
  const TemporaryFolder folder;
  const auto path = folder.file("file", "text");
  const MappedFile map{path, Errc::storage};
  ASSERT_EQ(map.bytes().size(), 4U);
  map.bytes()[0] = std::byte{'n'};
  EXPECT_EQ(read_file(path, Errc::data), "text");
  EXPECT_TRUE((MappedFile{folder.file("empty", ""), Errc::storage}.bytes().empty()));
  EXPECT_THROW((MappedFile{folder / "absent", Errc::storage}), Error);
}

}  // namespace
}  // namespace ddpxx
