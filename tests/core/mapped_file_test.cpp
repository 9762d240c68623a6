#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <stop_token>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include <ddpxx/core/file.hpp>
#include <ddpxx/core/mapped_file.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::mapped_file_test {
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

TEST(MappedFile, MayBeLargerThanTheMemory) {
  if (std::ifstream{"/proc/sys/vm/overcommit_memory"}.get() == '2')
    GTEST_SKIP() << "the kernel reserves memory for all mapped pages here (vm.overcommit_memory=2)";
  constexpr std::uintmax_t kSize = std::uintmax_t{1} << 40;
  const TemporaryFolder folder;
  const auto path = folder.file("sparse", "first");
  std::filesystem::resize_file(path, kSize);
  const MappedFile map{path, Errc::storage};
  ASSERT_EQ(map.bytes().size(), kSize);
  EXPECT_EQ(map.bytes().front(), std::byte{'f'});
  EXPECT_EQ(map.bytes().back(), std::byte{0});
}

TEST(MappedFile, HasTheSizeOfItsMappingWhereTheFileGrowsMeanwhile) {
  constexpr std::uintmax_t kPage = 4096, kMaxSize = std::uintmax_t{1} << 30;
  const TemporaryFolder folder;
  const auto path = folder.file("growing", std::string(kPage, 'x'));
  const std::jthread writer{[&path](const std::stop_token& ended) {
    for (auto size = 2 * kPage; size <= kMaxSize && !ended.stop_requested(); size += kPage)
      std::filesystem::resize_file(path, size);
  }};
  for (int i = 0; i < 20'000; ++i) {
    const MappedFile map{path, Errc::storage};
    ASSERT_GE(map.bytes().size(), kPage);
    ASSERT_LE(map.bytes().back(), std::byte{'x'});  // a byte behind the mapping ends the process
  }
}

}  // namespace
}  // namespace ddpxx::mapped_file_test
