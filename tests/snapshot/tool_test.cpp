// `ddpxx snapshot` as its user sees it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/snapshot/pt_file.hpp>
#include <ddpxx/snapshot/safetensors.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/snapshot/state_dicts.hpp>

#include "../launch/started_program.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class SnapshotTool : public testing::Test {
 protected:
  SnapshotTool() {
    for (const auto step : {100, 200}) save_snapshot(folder_ / "run", snapshot_of(step));
  }
  static Snapshot snapshot_of(std::int64_t step) {
    Snapshot snapshot{.step = step, .epoch = 2, .position = 48, .world_size = 3, .settings = {}, .tensors = {}};
    snapshot.settings = {{"training.seed", "5"}, {"optimizer.learning_rate", "0.02"}, {"optimizer.beta2", "0.95"}};
    snapshot.parameters = {{"weight", true}, {"table", false}, {"bias", false}};
    for (const char* name : {"table", "bias"}) snapshot.tensors.emplace(std::string{"model."} + name, at::ones({3}));
    for (const char* name : {"table", "bias"})
      for (const char* moment : {"exp_avg", "exp_avg_sq", "ema"})
        snapshot.tensors.emplace(std::string{"optimizer."} + moment + '.' + name,
                                 at::full({3}, static_cast<double>(name[0])));
    snapshot.tensors.emplace("optimizer.exp_avg_sq.weight", at::ones({3, 4}));
    snapshot.tensors.emplace("optimizer.step", at::full({}, static_cast<double>(step), at::kFloat));
    snapshot.tensors.emplace("model.weight", at::full({3, 4}, static_cast<double>(step)));
    snapshot.tensors.emplace("optimizer.exp_avg.weight", at::zeros({3, 4}));
    return snapshot;
  }
  /// Runs `ddpxx snapshot COMMAND run ARGUMENTS`.
  auto tool(const std::string& command, std::vector<std::string> arguments = {}) const {
    std::vector<std::string> words{program_folder() + "/ddpxx", "snapshot", command, (folder_ / "run").string()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return StartedProgram{words}.wait();
  }
  void damage(const std::string& file) const {
    std::fstream{folder_ / "run" / file, std::ios::in | std::ios::out | std::ios::binary}
        .seekp(-1, std::ios::end)
        .put('x');
  }

  TemporaryFolder folder_;
};

TEST_F(SnapshotTool, ListsTheNewestFirstAndWhatIsDamaged) {
  const auto all = tool("list");
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_LT(all.out.find(" 200 "), all.out.find(" 100 "));
  EXPECT_THAT(all.out, HasSubstr("epoch 2, 3 ranks"));
  damage("step-00000200/manifest.json");
  EXPECT_THAT(tool("list").out, HasSubstr("step-00000200/manifest.json is not usable: its checksum is wrong"));
}

TEST_F(SnapshotTool, ShowsWhatASnapshotHolds) {
  EXPECT_THAT(tool("show").out,
              AllOf(HasSubstr("step 200, epoch 2, position 48, 3 ranks"), HasSubstr("model.weight  F32 [3, 4]"),
                    HasSubstr("training.seed=5"), HasSubstr("\nwritten 2"), HasSubstr(" UTC\n")));
  EXPECT_THAT(tool("show", {"step=100"}).out, AllOf(HasSubstr("step 100"), Not(HasSubstr("overrides"))));
  auto told = snapshot_of(300);
  told.overrides = "- \"training.seed=5\"\n- \"token=***\"\n";
  told.config_hash = "3cb422a945a81aa7edd748a044e073cf51ad7e5c";
  told.optimizer = "Adam";
  save_snapshot(folder_ / "run", told);
  EXPECT_THAT(tool("show").out, AllOf(HasSubstr("\noverrides\n  - \"training.seed=5\"\n  - \"token=***\"\nsettings\n"),
                                      HasSubstr("\nconfiguration 3cb422a945a81aa7edd748a044e073cf51ad7e5c\n"),
                                      HasSubstr("\noptimizer Adam\n")));
  const auto none = tool("show", {"step=7"});
  EXPECT_EQ(none.code, 4);
  EXPECT_THAT(none.err, HasSubstr("no usable snapshot of step 7"));
}

TEST_F(SnapshotTool, VerifyReadsEveryByte) {
  EXPECT_EQ(tool("verify").code, 0);
  damage("step-00000100/all.safetensors");
  const auto found = tool("verify");
  EXPECT_EQ(found.code, 4);
  EXPECT_THAT(found.out, AllOf(HasSubstr("200  whole"), HasSubstr("all.safetensors is damaged between its bytes 0")));
  EXPECT_EQ(tool("verify", {"step=200"}).code, 0);
}

TEST_F(SnapshotTool, DiffNamesWhatDiffersAndEndsWith1) {
  const auto place = (folder_ / "run").string();
  EXPECT_EQ(tool("diff", {"other=" + place}).code, 0);
  const auto differs = tool("diff", {"other=" + place, "other_step=100"});
  EXPECT_EQ(differs.code, 1);
  EXPECT_THAT(differs.out, AllOf(HasSubstr("step: 200, 100"), HasSubstr("model.weight: largest difference 100"),
                                 Not(HasSubstr("exp_avg"))));
}

TEST_F(SnapshotTool, ConvertsToOneFileToPythonAndToAnotherPlace) {
  const auto file = folder_ / "all.safetensors";
  ASSERT_EQ(tool("convert", {"to=" + file.string(), "what=model"}).code, 0);
  const auto tensors = read_safetensors(file).tensors;
  EXPECT_EQ(tensors.size(), 3u);
  EXPECT_TRUE(at::equal(tensors.at("model.weight"), at::full({3, 4}, 200.0)));
  const auto pt = folder_ / "weights.pt";
  ASSERT_EQ(tool("convert", {"to=" + pt.string(), "layout=torchrun_tutorial"}).code, 0);
  EXPECT_TRUE(at::equal(from_python(read_pt(pt)).model.at("weight"), at::full({3, 4}, 200.0)));
  ASSERT_EQ(tool("convert", {"to=" + (folder_ / "copy").string(), "step=100"}).code, 0);
  EXPECT_EQ(load_snapshot(folder_ / "copy")->step, 100);
}

TEST_F(SnapshotTool, ConvertsTheOptimizerInTheOrderOfThePythonProgram) {
  const auto converted = [&](const char* layout) {
    const auto file = folder_ / (std::string{layout} + ".pt");
    EXPECT_EQ(tool("convert", {"to=" + file.string(), std::string{"layout="} + layout}).code, 0);
    return from_python(read_pt(file)).optimizer;
  };
  const auto first_of = [](const PickleValue& optimizer, std::size_t i) {
    const auto& state = optimizer.get<PickleDict>("it").find("state")->get<PickleDict>("state").entries.at(i).second;
    const auto& entries = state.get<PickleDict>("a state");
    EXPECT_EQ(entries.find("step")->get<at::Tensor>("step").item<float>(), 200.0F);
    EXPECT_EQ(entries.find("ema"), nullptr) << "no optimizer of Python has one";
    return entries.find("exp_avg")->get<at::Tensor>("exp_avg").view(-1)[0].item<double>();
  };
  const auto groups_of = [](const PickleValue& optimizer) {
    return optimizer.get<PickleDict>("it").find("param_groups")->get<PickleList>("param_groups");
  };
  const auto two = converted("mingpt_ddp");
  ASSERT_EQ(groups_of(two).size(), 2u) << "what decays, then the rest by name";
  EXPECT_EQ(first_of(two, 0), 0.0);
  EXPECT_EQ(first_of(two, 1), 'b');
  EXPECT_EQ(first_of(two, 2), 't');
  const auto one = converted("guide");
  const auto groups = groups_of(one);
  ASSERT_EQ(groups.size(), 1u) << "model.parameters()";
  EXPECT_EQ(first_of(one, 1), 't');
  EXPECT_EQ(first_of(one, 2), 'b');
  const auto& group = groups[0].get<PickleDict>("a group");
  EXPECT_EQ(group.find("lr")->get<double>("lr"), 0.02);
  EXPECT_EQ(group.find("betas")->get<PickleTuple>("betas").items.at(1).get<double>("beta2"), 0.95);
  EXPECT_TRUE(converted("torchrun_tutorial").is_none());
}

TEST_F(SnapshotTool, ConvertsTheDecayOfAdamAndSaysWhereOneGroupCannotTellWhatDecays) {
  auto snapshot = snapshot_of(300);
  snapshot.settings.push_back({"optimizer.weight_decay", "0.1"});
  snapshot.optimizer = "Adam";
  const auto file = folder_ / "adam.pt";
  const auto convert = [&](const Snapshot& from, const char* layout) {
    std::filesystem::remove_all(folder_ / "run");
    save_snapshot(folder_ / "run", from);
    const auto ended = tool("convert", {"to=" + file.string(), std::string{"layout="} + layout});
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  };
  const auto group = [&](std::size_t i) {
    const auto optimizer = from_python(read_pt(file)).optimizer;
    return optimizer.get<PickleDict>("it").find("param_groups")->get<PickleList>("groups")[i].get<PickleDict>("one");
  };
  const auto decay = [&](std::size_t i) { return group(i).find("weight_decay")->get<double>("weight_decay"); };

  EXPECT_THAT(convert(snapshot, "mingpt_ddp"), Not(HasSubstr("one group")));
  EXPECT_FALSE(group(0).find("decoupled_weight_decay")->get<bool>("the flag"));
  EXPECT_EQ(decay(0), 0.1);
  EXPECT_EQ(decay(1), 0.0);
  EXPECT_THAT(convert(snapshot, "guide"), HasSubstr("in this layout's one group Python decays all parameters"));
  EXPECT_EQ(decay(0), 0.1);
  for (auto& parameter : snapshot.parameters) parameter.decays = false;
  snapshot.optimizer = "AdamW";
  EXPECT_THAT(convert(snapshot, "guide"), Not(HasSubstr("one group")));
  EXPECT_EQ(decay(0), 0.0) << "none of them decays";
  EXPECT_TRUE(group(0).find("decoupled_weight_decay")->get<bool>("the flag"));
}

TEST_F(SnapshotTool, ConvertsWithoutAnOptimizerWhereTheOrderIsNotKnown) {
  auto old = snapshot_of(300);
  old.parameters.clear();
  save_snapshot(folder_ / "run", old);
  const auto file = folder_ / "old.pt";
  EXPECT_THAT(tool("convert", {"to=" + file.string()}).out, HasSubstr("without an optimizer's state"));
  EXPECT_TRUE(from_python(read_pt(file)).optimizer.is_none());
}

TEST_F(SnapshotTool, PrunesOnlyWhenToldWhatToKeep) {
  EXPECT_EQ(tool("prune").code, 2);
  EXPECT_EQ(load_snapshot(folder_ / "run")->step, 200);
  const auto pruned = tool("prune", {"keep_last=1"});
  EXPECT_EQ(pruned.code, 0) << pruned.err;
  EXPECT_THAT(pruned.out, HasSubstr("1 of 2 snapshots removed"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / "step-00000100"));
}

TEST_F(SnapshotTool, PruneKeepsByEpochsAndByTime) {
  save_snapshot(folder_ / "run", snapshot_of(300));
  EXPECT_EQ(tool("prune", {"keep_last=1", "keep_every_epochs=2"}).code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run" / "step-00000100")) << "the first one after two epochs";
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / "step-00000200"));
  EXPECT_EQ(tool("prune", {"keep_last=1", "keep_every_time=1h30m"}).code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run" / "step-00000100")) << "the oldest one";
  EXPECT_EQ(tool("prune", {"keep_last=1"}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / "step-00000100"));
}

TEST_F(SnapshotTool, SaysWhatItDoesNotUnderstand) {
  const auto command = tool("verfy");
  EXPECT_EQ(command.code, 2);
  EXPECT_THAT(command.err, HasSubstr("did you mean verify?"));
  EXPECT_EQ(tool("list", {"stpe=1"}).code, 2);
  const auto help = StartedProgram{{program_folder() + "/ddpxx", "--help"}}.wait();
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("snapshot COMMAND PLACE"));
}

}  // namespace
}  // namespace ddpxx
