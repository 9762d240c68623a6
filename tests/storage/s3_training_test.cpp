// A training whose snapshots lie behind s3://, as its user starts it.
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/storage/open_storage.hpp>

#include "../launch/started_program.hpp"
#include "s3_servers.hpp"

namespace ddpxx {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class S3Training : public testing::TestWithParam<const char*> {
 protected:
  S3Training() {
    const auto server = s3_server(GetParam());
    const auto prefix = s3_place(server, "training").prefix;
    bucket_ = server.at("bucket");
    place_ = "s3://" + bucket_ + '/' + prefix.substr(0, prefix.size() - 1);
    set("AWS_ENDPOINT_URL", server.at("endpoint"));
    set("AWS_REGION", server.at("region"));
    set("AWS_ACCESS_KEY_ID", server.at("access_key"));
    set("AWS_SECRET_ACCESS_KEY", server.at("secret_key"));
  }
  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

  Ended train(int ranks, std::vector<std::string> settings) const {
    std::vector<std::string> command{program_folder() + "/ddpxx-run", "--standalone", "--nproc-per-node",
                                     std::to_string(ranks), program_folder() + "/mingpt"};
    for (const auto& setting :
         {"data.path=" + text_, std::string{"data.block_size=8"}, std::string{"data.batch_size=2"},
          std::string{"model.n_layer=1"}, std::string{"model.n_head=1"}, std::string{"model.n_embd=8"},
          "training.save_dir=" + place_})
      command.push_back(setting);
    command.insert(command.end(), settings.begin(), settings.end());
    return StartedProgram{command}.wait();
  }
  Ended tool(const std::string& command) const {
    return StartedProgram{{program_folder() + "/ddpxx", "snapshot", command, place_}}.wait();
  }

  std::string bucket_;
  std::string place_;

 private:
  TemporaryFolder folder_;
  std::string text_ = folder_.file("text", std::string(2000, 'a') + "bcdefgh");
};
INSTANTIATE_TEST_SUITE_P(Servers, S3Training, testing::Values("ceph", "seaweedfs"));

TEST_P(S3Training, SavesAndGoesOnAtAnotherWorldSizeWithAnotherStrategy) {
  const auto first = train(2, {"training.max_steps=4", "training.save_every=2", "snapshot.writing=background"});
  ASSERT_EQ(first.code, 0) << first.err;
  const auto second = train(1, {"training.max_steps=6", "strategy=fsdp"});
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.err, HasSubstr("resumed at step 4 from " + place_));
  const auto list = tool("list");
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_THAT(list.out, AllOf(HasSubstr(" 6 "), HasSubstr(" 4 ")));
  EXPECT_EQ(tool("verify").code, 0);
}

TEST_P(S3Training, ReadsItsTextFromABucketAsFromADisk) {
  const auto texts = open_storage(place_ + "/texts");
  texts->write("1.txt", std::array{bytes_of(std::string(1000, 'a'))});
  texts->write("2.txt", std::array{bytes_of(std::string(1000, 'a') + "bcdefgh")});
  const auto disk = train(2, {"training.max_steps=2", "training.save_dir="});
  ASSERT_EQ(disk.code, 0) << disk.err;
  const auto bucket = train(2, {"training.max_steps=2", "training.save_dir=", "data.path=" + place_ + "/texts"});
  ASSERT_EQ(bucket.code, 0) << bucket.err;
  EXPECT_THAT(disk.out + disk.err, HasSubstr("Data has 2007 characters, 8 unique."));
  EXPECT_THAT(bucket.out + bucket.err, HasSubstr("Data has 2007 characters, 8 unique."));
  remove_all(*texts);
}

TEST_P(S3Training, EndsWith3WhereItsTextIsNot) {
  const auto missing = train(2, {"data.path=" + place_ + "/no.txt"});
  EXPECT_EQ(missing.code, 3);
  EXPECT_THAT(missing.err, HasSubstr("there is no object " + place_ + "/no.txt"));
  const auto nowhere = train(2, {"data.path=s3://ddpxx-no-such-bucket/text"});
  EXPECT_EQ(nowhere.code, 3);
  EXPECT_THAT(nowhere.err, AllOf(HasSubstr("s3://ddpxx-no-such-bucket"), HasSubstr("make the bucket")));
}

TEST_P(S3Training, EndsWith4BeforeItsFirstStepForAWrongSecret) {
  set("AWS_SECRET_ACCESS_KEY", "wrong");
  const auto run = train(2, {"training.max_steps=4"});
  EXPECT_EQ(run.code, 4);
  EXPECT_THAT(run.err, AllOf(HasSubstr("no snapshot can be written to " + place_), HasSubstr("SignatureDoesNotMatch")));
}

}  // namespace
}  // namespace ddpxx
