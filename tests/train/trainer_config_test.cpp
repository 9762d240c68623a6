// A trainer's settings as a part of a program's config, and the device that they name.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/recording.hpp>
#include <ddpxx/config/check_config.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/config/print.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/nn/concept.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/train/check_group_device.hpp>
#include <ddpxx/train/train_step.hpp>
#include <ddpxx/train/trainer.hpp>

#include "ones_and_line.hpp"

namespace ddpxx::trainer_config_test {
namespace {

using testing::Contains;
using testing::HasSubstr;

using Plain = Trainer<Line, Ones>;
static_assert(std::is_same_v<Plain, Trainer<Line, Ones, AdamW, Float32, DDP>>);
using Composed = Trainer<Line, Ones, AdamW, AutocastFP16, FSDP>;

template <class Train>
struct Program {
  std::string name = "none";
  typename Train::Config train = {};
  static constexpr auto describe() {
    return fields(field<&Program::name>("A field of the program"), flatten<&Program::train>());
  }
};

template <class Train>
Program<Train> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "program");
  return parse_config<Program<Train>>(static_cast<int>(words.size()), words.data());
}

TEST(TrainerConfig, IsFilledByTheKeysOfItsParts) {
  const auto config = parse<Plain>({"name=x", "batch_size=16", "num_workers=2", "training.max_steps=7",
                                    "optimizer.learning_rate=0.5", "snapshot.keep_last=3", "strategy.bucket_bytes=1kB"})
                          .train;
  EXPECT_EQ(config.batch_size, 16);
  EXPECT_EQ(config.num_workers, 2);
  EXPECT_EQ(config.training.max_steps, 7);
  EXPECT_EQ(config.optimizer.learning_rate, 0.5);
  EXPECT_EQ(config.snapshot.keep_last, 3);
  EXPECT_EQ(config.strategy.bucket_bytes, 1000);
}

TEST(TrainerConfig, HasTheKeysOfTheTypesThatWereChosen) {
  const auto config = parse<Composed>({"precision.scaler.growth_factor=4", "strategy.unit_bytes=1MiB"}).train;
  EXPECT_EQ(config.precision.scaler.growth_factor, 4);
  EXPECT_EQ(config.strategy.unit_bytes, std::int64_t{1} << 20);
}

TEST(TrainerConfig, IsRecordedWithItsPolicies) {
  std::vector<std::string> free, kept;
  for (const auto& setting : settings_of(Program<Plain>{}))
    (setting.resume == Resume::free ? free : kept).push_back(setting.path);
  EXPECT_THAT(free, Contains("batch_size"));
  EXPECT_THAT(kept, Contains("training.seed"));
}

std::string refusal_of_device(const std::string& device) {
  Group alone;
  Plain::Config config{.batch_size = 2};
  config.training.device = device;
  try {
    const Plain trainer{alone, std::make_shared<Line>(), std::make_shared<Ones>(), config};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    return error.what();
  }
  return "none";
}

TEST(TrainerConfig, IsRefusedWhereTheModelIsNotOnItsDevice) {
  EXPECT_EQ(refusal_of_device("auto"), "none");
  EXPECT_EQ(refusal_of_device("cpu"), "none");
  EXPECT_EQ(refusal_of_device("cuda"),
            "training.device=cuda: the model is on cpu; call join(environment, training.device), and make the model on "
            "group.device()");
}

constexpr const char* kOtherDevice =
    "the model is on cpu, and its group on meta: make the group with join(environment, training.device), and the model "
    "on group.device()";

TEST(TrainerConfig, IsRefusedWhereTheModelIsNotOnTheDeviceOfTheGroup) {
  const auto recording = std::make_shared<Recording>();
  auto group = recording_group(0, 2, recording, at::kMeta);
  try {
    const Plain trainer{group, std::make_shared<Line>(), std::make_shared<Ones>(), Plain::Config{.batch_size = 2}};
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_STREQ(error.what(), kOtherDevice);
  }
  try {
    const TrainStep<Line> step{group, std::make_shared<Line>(), {}};
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_STREQ(error.what(), kOtherDevice);
  }
  EXPECT_TRUE(recording->calls.empty()) << "the refusal must come before anything is sent";
  group.leave();
}

TEST(GroupDevice, IsThatOfTheModelOrHasNoIndex) {
  EXPECT_NO_THROW(check_group_device(at::kCPU, at::kCPU));
  EXPECT_NO_THROW(check_group_device({at::kCUDA, 1}, {at::kCUDA, 1}));
  EXPECT_NO_THROW(check_group_device({at::kCUDA, 1}, at::kCUDA));
  EXPECT_THROW(check_group_device({at::kCUDA, 1}, {at::kCUDA, 0}), Error);
  EXPECT_THROW(check_group_device({at::kCUDA, 0}, at::kCPU), Error);
}

}  // namespace
}  // namespace ddpxx::trainer_config_test
