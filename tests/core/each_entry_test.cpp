// each_entry: what the system refuses is returned, and no exception comes out of the middle of a listing.
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <unistd.h>

#include <gtest/gtest.h>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/each_entry.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::each_entry_test {
namespace {

using detail::each_entry;

TEST(EachEntry, VisitsEveryEntryOnce) {
  const TemporaryFolder folder;
  for (int i = 0; i < 3; ++i) std::ofstream{folder.path() / std::to_string(i)};
  int visited = 0;
  EXPECT_FALSE(each_entry(folder.path(),
                          [&](const auto& entry) { visited += 1 << std::stoi(entry.path().filename().string()); }));
  EXPECT_EQ(visited, 0b111);
}

TEST(EachEntry, ReturnsTheErrorOfAFolderThatIsNotThere) {
  const TemporaryFolder folder;
  EXPECT_EQ(each_entry(folder.path() / "none", [](const auto&) { FAIL(); }), std::errc::no_such_file_or_directory);
}

/// The descriptor by which this process reads the folder.
int descriptor_of(const std::filesystem::path& folder) {
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    std::error_code closed;
    if (std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), closed) == folder)
      return descriptor;
  }
  return -1;
}

TEST(EachEntry, ReturnsTheErrorThatEndsAListing) {
  const TemporaryFolder folder;
  const std::string long_name(200, 'x');
  for (int i = 0; i < 1000; ++i) std::ofstream{folder.path() / (long_name + std::to_string(i))};  // in several reads
  const auto path = std::filesystem::canonical(folder.path());
  const Descriptor file{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  int visited = 0;
  const auto error = each_entry(path, [&](const auto&) {
    // The second read of the folder then fails, as where a network file system loses its server.
    if (visited++ == 0) ASSERT_GE(::dup2(file.get(), descriptor_of(path)), 0);
  });
  EXPECT_EQ(error, std::errc::not_a_directory);
  EXPECT_LT(visited, 1000);
}

}  // namespace
}  // namespace ddpxx::each_entry_test
