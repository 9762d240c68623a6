// Rows 13, 15 and 16 of the fault table of configurations: ranks with different settings, and a run that resumes with
// other settings.
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/config/print.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/nn/gpt_config.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/run_state.hpp>
#include <ddpxx/train/same_run.hpp>

namespace ddpxx::settings_test {
namespace {

TEST(Fault13, RanksWithOtherSettingsAreNamedWithTheirValues) {
  spawn_ranks(3, [](Group& group) {
    Settings settings{
        {"seed", group.rank() == 1 ? "2" : "1"}, {"batch_size", std::to_string(group.rank())}, {"same", "x"}};
    if (group.rank() == 2) settings.push_back({"extra", "y"});
    try {
      check_same_run(settings, group);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::peer);
      EXPECT_STREQ(error.what(),
                   "the ranks were started with different settings:"
                   "\n  seed: 1 on ranks 0, 2, 2 on rank 1"
                   "\n  batch_size: 0 on rank 0, 1 on rank 1, 2 on rank 2"
                   "\n  extra: nothing on ranks 0, 1, y on rank 2"
                   "\nstart all of them with one configuration and one text");
    }
    check_same_run({{"same", "x"}}, group);
  });
}

TEST(Fault13, APartThatDiffersIsNamedAsAWhole) {
  spawn_ranks(2, [](Group& group) {
    Settings settings{{"strategy", group.rank() == 0 ? "DDP" : "FSDP"}, {"strategies", std::to_string(group.rank())}};
    settings.push_back({group.rank() == 0 ? "strategy.bucket_bytes" : "strategy.unit.bytes", "1MiB"});
    try {
      check_same_run(settings, group);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(),
                   "the ranks were started with different settings:"
                   "\n  strategy: DDP on rank 0, FSDP on rank 1"
                   "\n  strategies: 0 on rank 0, 1 on rank 1"
                   "\nstart all of them with one configuration and one text");
    }
  });
}

TEST(Fault13, TheVersionsAreCompared) {
  const auto text = detail::versions_text();
  EXPECT_NE(text.find(" on LibTorch 2."), std::string::npos) << text;
}

const Settings kRun{{"model.n_layer", "4", Resume::must_match, ""},
                    {"optimizer.learning_rate", "0.1", Resume::warn, ""},
                    {"training.max_steps", "10", Resume::free, ""}};

Manifest snapshot_of(const Settings& settings) {
  Manifest manifest;
  manifest.run.settings = settings;
  return manifest;
}

TEST(Fault15, ASettingThatMustMatchIsAnErrorWithTheDifference) {
  try {
    compare_settings(kRun, snapshot_of({{"model.n_layer", "3"}, {"optimizer.learning_rate", "0.2"}}));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::storage) << "the snapshot of another model must be refused";
    EXPECT_STREQ(error.what(),
                 "the snapshot is of another run:\n  model.n_layer: 3 in the snapshot, 4 now\n"
                 "set them back, or choose another snapshot or save_dir");
  }
}

TEST(Fault15, OthersAreWarnedOfOrFree) {
  const auto warnings = compare_settings(
      kRun, snapshot_of({{"model.n_layer", "4"}, {"optimizer.learning_rate", "0.2"}, {"training.max_steps", "5"}}));
  EXPECT_EQ(warnings, (std::vector<std::string>{"resumed with a changed setting: optimizer.learning_rate 0.2 -> 0.1"}));
}

struct Network {
  GPTConfig model = {};

  static constexpr auto describe() { return fields(field<&Network::model>("The network", Resume::must_match)); }
};

TEST(Fault15, TheDropoutOfAGPTMayChangeAndItsSizesMayNot) {
  const auto saved = snapshot_of(settings_of(Network{}));
  EXPECT_EQ(compare_settings(settings_of(Network{{.dropout = 0.0}}), saved),
            (std::vector<std::string>{"resumed with a changed setting: model.dropout 0.1 -> 0.0"}));
  EXPECT_THROW(compare_settings(settings_of(Network{{.n_embd = 96}}), saved), Error);
}

TEST(Fault16, SettingsOfAnOlderVersionThatAreGoneOrNewAreNoConflict) {
  EXPECT_TRUE(compare_settings(kRun, snapshot_of({{"model.depth", "4"}})).empty());
}

}  // namespace
}  // namespace ddpxx::settings_test
