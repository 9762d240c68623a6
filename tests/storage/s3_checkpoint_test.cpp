// s3_checkpoint_test.cpp — checkpoints in a bucket, of a program that trains with LibTorch only.
#include <array>
#include <cstdlib>
#include <sstream>
#include <string>

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/interop/checkpoint_file.hpp>

#include "s3_servers.hpp"

namespace ddpxx::s3_checkpoint_test {
namespace {

class S3Checkpoints : public testing::TestWithParam<std::string> {
 protected:
  S3Checkpoints() {
    set("AWS_ENDPOINT_URL", server_.at("endpoint"));
    set("AWS_REGION", server_.at("region"));
    set("AWS_ACCESS_KEY_ID", server_.at("access_key"));
    set("AWS_SECRET_ACCESS_KEY", server_.at("secret_key"));
  }
  void TearDown() override {
    for (const auto* name : {"AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"})
      ::unsetenv(name);
  }
  static void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

  nlohmann::json server_ = s3_server(GetParam());
  std::string bucket_ = server_.at("bucket");
};

INSTANTIATE_TEST_SUITE_P(, S3Checkpoints, testing::Values("ceph", "seaweedfs"),
                         [](const auto& server) { return server.param; });

TEST_P(S3Checkpoints, HoldAModelAndItsOptimizerUnderAFileName) {
  torch::nn::Linear model{3, 2};
  torch::optim::AdamW optimizer{model->parameters(), 1e-2};
  model->forward(at::ones({4, 3})).sum().backward();
  optimizer.step();
  const auto filename = s3_place(server_, "epoch").prefix + "7.pt";
  std::ostringstream printed;
  CheckpointFiles files{bucket_, "checkpoints", printed};
  files.save_checkpoint(7, *model, optimizer, filename);
  const auto place = "s3://" + bucket_ + "/checkpoints";
  EXPECT_EQ(printed.str(), "Checkpoint saved to " + place + '/' + filename + '\n');

  const auto loaded = CheckpointFiles{bucket_}.load_checkpoint(filename);  // loads as another node would
  EXPECT_EQ(loaded.layout, CheckpointLayout::guide);
  EXPECT_EQ(loaded.epoch, 7);
  ASSERT_EQ(loaded.model.size(), 2U);
  EXPECT_TRUE(at::equal(loaded.model.at("weight"), model->weight));
  const OptimizerGroup group{{"weight", "bias"}, {}};
  const auto state = optimizer_from_python(loaded.optimizer, std::array{group});
  const auto& known =
      static_cast<const torch::optim::AdamWParamState&>(*optimizer.state().at(model->bias.unsafeGetTensorImpl()));
  EXPECT_TRUE(at::equal(state.at("optimizer.exp_avg.bias"), known.exp_avg()));
  EXPECT_EQ(state.at("optimizer.step").item<float>(), 1.0F);
  open_storage(place)->remove(filename);
}

}  // namespace
}  // namespace ddpxx::s3_checkpoint_test
