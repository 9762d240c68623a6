// Facts that a dataset records in snapshots: a run may resume only on the data that it started with.
#include <memory>
#include <string>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/parallel/ddp.hpp>

#include "training_run.hpp"

namespace ddpxx::data_facts_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Recording : Tokens {
  std::string alphabet = "abc";
  std::string text = "the first";
  Settings recorded() const {
    return {{"the alphabet", alphabet, Resume::must_match, {}}, {"the text", text, Resume::must_match, {}}};
  }
};

class DataFacts : public TrainingRun {
 protected:
  std::string error_of(int world_size, const RunOptions& options, const std::shared_ptr<const Recording>& data) {
    try {
      train<DDP, Recording>(world_size, options, {}, data);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

TEST_F(DataFacts, AreInTheSnapshotAndAResumedRunMustHaveThem) {
  Recording data;
  train<DDP, Recording>(2, {.max_steps = 2}, {}, std::make_shared<const Recording>(data));
  const auto settings = snapshot().run.settings;
  EXPECT_THAT(settings, testing::Contains(testing::AllOf(testing::Field(&Setting::path, "the alphabet"),
                                                         testing::Field(&Setting::value, "abc"))));
  EXPECT_EQ(error_of(1, {.max_steps = 3}, std::make_shared<const Recording>(data)), "no error");
  data.alphabet = "abd";
  EXPECT_THAT(
      error_of(1, {.max_steps = 4}, std::make_shared<const Recording>(data)),
      AllOf(HasSubstr("the snapshot is of another run"), HasSubstr("the alphabet: abc in the snapshot, abd now")));
  data.alphabet = std::string(1000, 'x');
  EXPECT_THAT(error_of(1, {.max_steps = 4}, std::make_shared<const Recording>(data)), HasSubstr("xxx... (1000 bytes"));
}

TEST_F(DataFacts, AreComparedBetweenTheRanks) {
  try {
    spawn_ranks(2, [&](Group& group) {
      auto data = std::make_shared<Recording>();
      if (group.rank() == 1) data->text = "the second";
      using Train = Trainer<GPT, Recording, AdamW, Float32, DDP>;
      Train::Config config;
      config.batch_size = 2;
      const GPTConfig sizes{.n_layer = 1, .n_head = 1, .n_embd = 8};
      const Train trainer{group, std::make_shared<GPT>(sizes, 11, 8), data, config};
    });
    FAIL() << "another text was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the text: the first on rank 0, the second on rank 1"));
  }
}

}  // namespace
}  // namespace ddpxx::data_facts_test
