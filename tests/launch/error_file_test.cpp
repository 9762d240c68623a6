// The files by which ranks tell torchelastic's launchers, and ours, why they failed.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/error_file.hpp>
#include <ddpxx/launch/program.hpp>

#include "../temporary_folder.hpp"

namespace ddpxx::error_file_test {
namespace {

using namespace detail;

class ErrorFile : public testing::Test {
 protected:
  void SetUp() override { ::setenv("TORCHELASTIC_ERROR_FILE", path_.c_str(), 1); }
  void TearDown() override { ::unsetenv("TORCHELASTIC_ERROR_FILE"); }

  TemporaryFolder folder_;
  std::string path_ = (folder_ / "error.json").string();
};

TEST_F(ErrorFile, HasTheErrorOfAProgram) {
  EXPECT_EXIT(run_program("name",
                          [] {
                            throw Error{Errc::storage, "no \"space\" left\xff"};
                          }),
              testing::ExitedWithCode(4), "no \"space\" left");
  EXPECT_EQ(read_error_file(path_), "Error: no \"space\" left\xef\xbf\xbd");
}

TEST_F(ErrorFile, IsNotWrittenByAProgramThatEndsWellOrWasAskedToStop) {
  EXPECT_EXIT(run_program("name", [] {}), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(run_program("name", [] { throw Error{Errc::stopped, "stopped"}; }), testing::ExitedWithCode(75), "");
  EXPECT_FALSE(read_error_file(path_));
}

TEST_F(ErrorFile, IsReadInTheFormsThatTorchelasticWrites) {
  const auto read = [&](const std::string& text) { return read_error_file(folder_.file("read.json", text)); };
  EXPECT_EQ(read(R"({"message": {"message": "ValueError: no", "extraInfo": {"timestamp": "1"}}})"), "ValueError: no");
  EXPECT_EQ(read(R"({"message": "text"})"), "text");
  for (const char* other : {"", "{", "[]", "{}", R"({"message": 1})", R"({"message": {"message": 1}})"})
    EXPECT_EQ(read(other), std::nullopt) << other;
  EXPECT_EQ(read_error_file(folder_ / "missing"), std::nullopt);
  EXPECT_EQ(read_error_file(folder_ / ""), std::nullopt) << "a folder";
}

TEST_F(ErrorFile, GoesToTheLauncherOfTheLauncher) {
  pass_on_error_file(folder_.file("rank.json", R"({"message": {"message": "text"}})"), 9);
  EXPECT_EQ(read_error_file(path_), "text");
  EXPECT_NE((std::ostringstream{} << std::ifstream{path_}.rdbuf()).str().find(R"("errorCode":9)"), std::string::npos);
}

}  // namespace
}  // namespace ddpxx::error_file_test
