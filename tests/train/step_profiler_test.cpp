// training.profile: some steps are recorded by each rank, with the parts of a step, and change no number.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/train/step_profiler.hpp>

#include "../error_of.hpp"
#include "training_run.hpp"

namespace ddpxx::step_profiler_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class StepProfiles : public TrainingRun {
 protected:
  std::filesystem::path folder() const { return place().parent_path() / "profiles"; }

  /// Trains, resuming from the snapshot in `place()`, and returns the parameters at the end.
  template <class Strategy = DDP>
  at::Tensor run(Group& group, std::int64_t max_steps, std::int64_t after, std::int64_t steps,
                 const std::filesystem::path& profiles) {
    using Train = Trainer<GPT, Tokens, AdamW, Float32, Strategy>;
    typename Train::Config config;
    config.batch_size = kGlobalBatch / group.size();
    config.training = {.max_steps = max_steps,
                       .max_epochs = 0,
                       .save_dir = place().string(),
                       .profile = profiles.string(),
                       .profile_after = after,
                       .profile_steps = steps};
    at::manual_seed(3);
    auto model = std::make_shared<GPT>(GPTConfig{.n_layer = 2, .n_head = 2, .n_embd = 16}, 11, 8);
    std::ostringstream screen;
    Train trainer{group, model, std::make_shared<Tokens>(), config, {}, {.screen = &screen}};
    trainer.fit();
    return torch::nn::utils::parameters_to_vector(model->parameters()).detach().clone();
  }

  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator{folder()}) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }

  /// The names of the events in a file.
  std::set<std::string> events(const std::string& name) const {
    std::ifstream file{folder() / name};
    std::set<std::string> names;
    const auto trace = nlohmann::json::parse(file);
    for (const auto& event : trace.at("traceEvents")) names.insert(event.value("name", ""));
    return names;
  }
};

TEST_F(StepProfiles, ShowTheStepsTheirPartsAndTheirOperationsOnEachRank) {
  spawn_ranks(2, [&](Group& group) { run(group, 8, 2, 2, folder()); });
  EXPECT_THAT(files(), ElementsAre("rank-0.steps-3-4.pt.trace.json", "rank-1.steps-3-4.pt.trace.json"));
  for (const auto& file : files())
    EXPECT_THAT(
        events(file),
        AllOf(Contains("ProfilerStep#3"), Contains("ProfilerStep#4"), Contains("data"), Contains("forward"),
              Contains("backward"), Contains("optimizer"), Contains("wait for all_reduce"), Contains("aten::embedding"),
              Contains("aten::_fused_adamw_"), Not(Contains("ProfilerStep#2")), Not(Contains("ProfilerStep#5"))))
        << file;
}

TEST_F(StepProfiles, ChangeNoNumber) {
  spawn_ranks(2, [&](Group& group) {
    const auto profiled = run<FSDP>(group, 5, 1, 2, folder());
    barrier(group);
    if (group.rank() == 0) std::filesystem::remove_all(place());
    barrier(group);
    EXPECT_TRUE(at::equal(run<FSDP>(group, 5, 1, 2, {}), profiled));
  });
  EXPECT_THAT(files(), SizeIs(2));
}

TEST_F(StepProfiles, CountTheStepsOfThisStartAndEndWithTheTraining) {
  Group alone;
  run(alone, 4, 2, 100, folder());
  EXPECT_THAT(files(), ElementsAre("rank-0.steps-3-4.pt.trace.json"));
  run(alone, 9, 2, 2, folder());
  EXPECT_THAT(files(), ElementsAre("rank-0.steps-3-4.pt.trace.json", "rank-0.steps-7-8.pt.trace.json"));
}

TEST_F(StepProfiles, AreMissedWithAMessageWhereTheTrainingEndsBefore) {
  Group alone;
  std::string said;
  set_log_sink([&](const LogLine& line) { said += line.text; });
  run(alone, 2, 10, 3, folder());
  set_log_sink({});
  EXPECT_THAT(said, HasSubstr("no step was profiled: the training has ended after 2 steps, and training.profile_after "
                              "is 10"));
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(StepProfiles, AreRefusedOnAllRanksWhereTheirFolderCannotBeMade) {
  std::ofstream{folder()} << "a file";
  spawn_ranks(2, [&](Group& group) {
    EXPECT_THAT(error_of([&] { run(group, 2, 0, 1, folder()); }),
                HasSubstr("training.profile: cannot make the folder"));
  });
}

TEST_F(StepProfiles, ThatCannotBeWrittenAreAWarning) {
  std::string said;
  set_log_sink([&](const LogLine& line) { said += line.text; });
  StepProfiler profiler{{.folder = folder(), .after = 0, .steps = 1}};
  EXPECT_TRUE(profiler.begin_step(1));
  std::filesystem::remove_all(folder());
  EXPECT_TRUE(profiler.end_step());
  set_log_sink({});
  EXPECT_THAT(said, HasSubstr("cannot write the profile"));
}

TEST_F(StepProfiles, HaveTheDataOfASingleStep) {
  Group alone;
  run(alone, 4, 2, 1, folder());
  EXPECT_THAT(events("rank-0.steps-3-3.pt.trace.json"), AllOf(Contains("data"), Contains("forward")));
}

TEST_F(StepProfiles, BeginAnewWithATrainingThatGoesOn) {
  StepProfiler profiler{{.folder = folder(), .after = 1, .steps = 3}};
  const auto step = [&](std::int64_t number) {
    const bool has_begun = profiler.begin_step(number);
    return profiler.end_step() || has_begun;
  };
  EXPECT_FALSE(step(1));
  EXPECT_TRUE(step(2));
  profiler.begin_step(3);  // fails, and is not ended
  profiler.begin();
  EXPECT_FALSE(step(1));
  EXPECT_TRUE(step(2));
  EXPECT_FALSE(step(3));
  profiler.begin_step(4);  // is tried twice
  profiler.begin_step(4);
  EXPECT_TRUE(profiler.end_step());
  EXPECT_THAT(files(), ElementsAre("rank-0.steps-2-4.pt.trace.json"));
}

TEST_F(StepProfiles, AreLeftOutWithAWarningWhileAnotherProfilerRuns) {
  std::string said;
  set_log_sink([&](const LogLine& line) { said += line.text; });
  StepProfiler first{{.folder = folder(), .after = 0, .steps = 1}},
      second{{.folder = folder(), .after = 0, .steps = 1}};
  EXPECT_TRUE(first.begin_step(1));
  EXPECT_FALSE(second.begin_step(1));
  EXPECT_FALSE(second.end_step());
  EXPECT_TRUE(first.end_step());
  set_log_sink({});
  EXPECT_THAT(said, HasSubstr("no step is profiled: another profiler is running in this thread"));
  EXPECT_THAT(files(), SizeIs(1));
}

}  // namespace
}  // namespace ddpxx::step_profiler_test
