// The process that runs the Python scripts of a test program.
#include <fstream>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../temporary_folder.hpp"
#include "python.hpp"

namespace ddpxx::python_server_test {
namespace {

using testing::HasSubstr;

TEST(RunPython, ReturnsWhatAScriptPrintsAndThrowsWhereItFails) {
  const TemporaryFolder folder;
  const std::string script = folder / "script.py";
  std::ofstream{script} << "import sys\n"
                           "print('got', *sys.argv[1:], __name__)\n"
                           "sys.exit(int(sys.argv[1]))\n";
  const auto message = [&](const std::string& name, const std::string& code) -> std::string {
    try {
      return run_python(name, {code, "it's"});
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(message(script, "0"), "got 0 it's __main__\n");
  EXPECT_THAT(message(script, "3"), HasSubstr("failed with 3"));
  EXPECT_THAT(message(script, "3"), HasSubstr("got 3 it's __main__\n"));
  EXPECT_THAT(message("no_such_script.py", "0"), HasSubstr("failed with 1"));
  EXPECT_EQ(message(script, "0"), "got 0 it's __main__\n") << "a failure must not end the server";
}

}  // namespace
}  // namespace ddpxx::python_server_test
