// A training whose snapshots are behind s3://, started as a user would start it.
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/storage/open_storage.hpp>

#include "../launch/started_program.hpp"
#include "s3_servers.hpp"

namespace ddpxx::s3_training_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class S3Training : public testing::TestWithParam<const char*> {
 protected:
  S3Training() {
    const auto prefix = s3_place(server_, "training").prefix;
    place_ = "s3://" + server_.at("bucket").get<std::string>() + '/' + prefix.substr(0, prefix.size() - 1);
    set("AWS_ENDPOINT_URL", server_.at("endpoint"));
    set("AWS_REGION", server_.at("region"));
    set("AWS_ACCESS_KEY_ID", server_.at("access_key"));
    set("AWS_SECRET_ACCESS_KEY", server_.at("secret_key"));
  }
  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

  /// The command of a training in one process.
  std::vector<std::string> alone(const std::vector<std::string>& settings) const {
    std::vector<std::string> command{program_folder() + "/mingpt"};
    for (const auto& setting :
         {"data.path=" + text_, std::string{"data.block_size=8"}, std::string{"data.batch_size=2"},
          std::string{"model.n_layer=1"}, std::string{"model.n_head=1"}, std::string{"model.n_embd=8"},
          "training.save_dir=" + place_})
      command.push_back(setting);
    command.insert(command.end(), settings.begin(), settings.end());
    return command;
  }
  Ended train(int ranks, const std::vector<std::string>& settings) const {
    std::vector<std::string> command{program_folder() + "/ddpxx-run", "--standalone", "--nproc-per-node",
                                     std::to_string(ranks)};
    for (auto& word : alone(settings)) command.push_back(std::move(word));
    return StartedProgram{command}.wait();
  }
  Ended tool(const std::string& command, const std::vector<std::string>& arguments = {}) const {
    return tool_at(place_, command, arguments);
  }
  static Ended tool_at(const std::string& place, const std::string& command,
                       const std::vector<std::string>& arguments) {
    std::vector<std::string> words{program_folder() + "/ddpxx", "snapshot", command, place};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return StartedProgram{words}.wait();
  }

  nlohmann::json server_ = s3_server(GetParam());
  std::string place_;
  TemporaryFolder folder_;

 private:
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

TEST_P(S3Training, LeavesWhatTheToolShowsComparesConvertsAndPrunes) {
  const auto run = train(1, {"training.max_steps=4", "training.save_every=2"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(tool("show", {"step=2"}).out, HasSubstr("step 2, epoch 0"));
  EXPECT_EQ(tool("diff", {"other=" + place_}).code, 0);
  EXPECT_EQ(tool("diff", {"other=" + place_, "other_step=2"}).code, 1);

  const auto copy = (folder_ / "copy").string(), file = place_ + "/weights.pt";
  EXPECT_EQ(tool("convert", {"to=" + copy}).code, 0);
  EXPECT_EQ(tool("diff", {"other=" + copy}).code, 0);
  EXPECT_EQ(tool("convert", {"to=" + place_}).code, 4) << "the step must not be replaced";
  EXPECT_EQ(tool("verify").code, 0);
  EXPECT_EQ(tool("convert", {"to=" + file}).code, 0);
  const auto back = tool_at(file, "convert", {"to=" + place_ + "/back"});
  EXPECT_EQ(back.code, 0) << back.err;
  EXPECT_THAT(tool_at(place_ + "/back", "show", {}).out, HasSubstr("step 4, epoch 0"));

  const auto pruned = tool("prune", {"keep_last=1"});
  EXPECT_EQ(pruned.code, 0) << pruned.err;
  EXPECT_THAT(pruned.out, HasSubstr("1 of 2 snapshots removed"));
  EXPECT_EQ(tool("show", {"step=2"}).code, 4);
}

TEST_P(S3Training, KilledInMidUploadOfItsSecondSnapshotGoesOnFromTheFirstBitForBit) {
  const std::vector<std::string> settings{"model.n_embd=384", "model.dropout=0.2", "training.max_steps=5",
                                          "training.save_every=2"};  // a snapshot is uploaded in two parts
  const auto whole = place_ + "-whole", parts = std::exchange(place_, whole);
  const auto expected = StartedProgram{alone(settings)}.wait();
  ASSERT_EQ(expected.code, 0) << expected.err;

  place_ = parts;
  const FaultProxy proxy{server_};
  proxy.rule({{"method", "PUT"}, {"path", "step-00000004/rank-0"}, {"skip", 1}, {"action", "stall"}});
  set("AWS_ENDPOINT_URL", proxy.endpoint());
  StartedProgram killed{alone(settings)};
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds{60};
  while (proxy.hits() == 0 && std::chrono::steady_clock::now() < patience)
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
  killed.signal(SIGKILL);
  EXPECT_EQ(killed.wait().code, -SIGKILL);
  EXPECT_GT(proxy.hits(), 0);

  set("AWS_ENDPOINT_URL", server_.at("endpoint"));
  const auto second = StartedProgram{alone(settings)}.wait();
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.err, HasSubstr("resumed at step 2 from " + place_));
  const auto difference = tool("diff", {"other=" + whole});
  EXPECT_EQ(difference.code, 0) << difference.out;
  EXPECT_EQ(difference.out, "");
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

TEST_P(S3Training, EndsWith3WhereItsTextIsNotAndWith4WhereItsBucketIsNot) {
  const auto missing = train(2, {"data.path=" + place_ + "/no.txt"});
  EXPECT_EQ(missing.code, 3);
  EXPECT_THAT(missing.err, HasSubstr("there is no object " + place_ + "/no.txt"));
  const auto nowhere = train(2, {"data.path=s3://ddpxx-no-such-bucket/text"});
  EXPECT_EQ(nowhere.code, 4);
  EXPECT_THAT(nowhere.err, AllOf(HasSubstr("s3://ddpxx-no-such-bucket"), HasSubstr("make the bucket")));
}

TEST_P(S3Training, EndsWith4BeforeItsFirstStepForAWrongSecret) {
  set("AWS_SECRET_ACCESS_KEY", "wrong");
  const auto run = train(2, {"training.max_steps=4"});
  EXPECT_EQ(run.code, 4);
  EXPECT_THAT(run.err, AllOf(HasSubstr("no snapshot can be written to " + place_), HasSubstr("SignatureDoesNotMatch")));
}

}  // namespace
}  // namespace ddpxx::s3_training_test
