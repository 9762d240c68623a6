// Programs that own their process train models, and end by a return from their own main().
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../launch/started_program.hpp"
#include "../temporary_folder.hpp"

namespace embed_test {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Embed, AHostTrainsTwiceLosesARankAndEndsByItsOwnReturn) {
  const TemporaryFolder folder;
  const auto host = StartedProgram{{program_folder() + "/embed_host", folder.path().string()}}.wait();
  EXPECT_EQ(host.code, 0) << host.out << host.err;
  EXPECT_EQ(host.out, "embed_host: static destructors ran\n") << "ddpxx must print nothing to the host's stdout";
  EXPECT_THAT(host.err, Not(HasSubstr("resumed"))) << "messages go to the host's log, not to stderr";
}

TEST(Embed, TheProgramOfTheDocsTrainsAloneAndSaysWhyItCannot) {
  const auto program = program_folder() + "/embedding_page";
  const auto alone = StartedProgram{{program}}.wait();
  EXPECT_EQ(alone.code, 0) << alone.err;
  EXPECT_EQ(alone.out, "trained for 20 steps\n");
  const auto nowhere = StartedProgram{{program, "nowhere", "0", "2"}}.wait();
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("the training has failed: \"nowhere\" is not an address"));
}

TEST(Embed, ProcessesOfMPITrainTogetherAndEndByTheirOwnReturn) {
  const auto host = StartedProgram{{DDPXX_MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", "2",
                                    program_folder() + "/embed_mpi_host"}}
                        .wait();
  EXPECT_EQ(host.code, 0) << host.out << host.err;
  EXPECT_THAT(host.out, HasSubstr("embed_mpi_host: 2 ranks end by their own return"));
}

}  // namespace
}  // namespace embed_test
