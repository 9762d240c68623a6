// Runs `ddpxx snapshot` as a user would.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/crc32c.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/host_name.hpp>
#include <ddpxx/interop/pt_file.hpp>
#include <ddpxx/interop/state_dicts.hpp>
#include <ddpxx/snapshot/chunk_sums.hpp>
#include <ddpxx/snapshot/safetensors.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/storage/folder.hpp>

#include "../../tools/snapshot_command.hpp"
#include "../launch/started_program.hpp"
#include "../temporary_folder.hpp"
#include "memory_storage.hpp"

namespace ddpxx::tool_test {
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
    Snapshot snapshot{.run = {.step = step, .epoch = 2, .position = 48}, .world_size = 3};
    snapshot.run.settings = {{"training.seed", "5"}, {"optimizer.learning_rate", "0.02"}, {"optimizer.beta2", "0.95"}};
    snapshot.run.parameters = {{"weight", true}, {"table", false}, {"bias", false}};
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
  /// Runs `ddpxx snapshot COMMAND PLACE ARGUMENTS`.
  static auto tool_at(const std::string& place, const std::string& command,
                      const std::vector<std::string>& arguments = {}) {
    std::vector<std::string> words{program_folder() + "/ddpxx", "snapshot", command, place};
    words.insert(words.end(), arguments.begin(), arguments.end());
    return StartedProgram{words}.wait();
  }
  /// Runs the tool on the snapshots in this test's folder.
  auto tool(const std::string& command, const std::vector<std::string>& arguments = {}) const {
    return tool_at((folder_ / "run").string(), command, arguments);
  }
  /// Flips the last byte of a step's tensors.
  void damage_tensors_of(const std::string& step) const {
    for (const auto& entry : std::filesystem::directory_iterator{folder_ / "run" / step})
      if (entry.path().extension() == ".safetensors") damage(step + '/' + entry.path().filename().string());
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
  EXPECT_THAT(all.out,
              AllOf(HasSubstr("step        size  written"), HasSubstr(" UTC "), HasSubstr("epoch 2, 3 ranks")));
  auto one = snapshot_of(300);
  one.world_size = 1;
  one.run.metrics = {{"loss", 2.51234}};
  save_snapshot(folder_ / "one", one);
  EXPECT_THAT(tool_at((folder_ / "one").string(), "list").out,
              AllOf(HasSubstr("  2.5123  epoch 2, 1 rank\n"), HasSubstr("val_loss")));
  damage("step-00000200/manifest.json");
  EXPECT_THAT(tool("list").out, HasSubstr("step-00000200/manifest.json is not usable: its checksum is wrong"));
  const auto step = folder_ / "run/step-00000100";
  std::filesystem::rename(step / "manifest.json", step / "manifest.rejected.json");
  EXPECT_THAT(tool("list").out, HasSubstr("  damaged, set aside (manifest.rejected.json)\n"));
}

TEST_F(SnapshotTool, ShowsWhatASnapshotHolds) {
  EXPECT_THAT(tool("show").out,
              AllOf(HasSubstr("step 200, epoch 2, position 48, 3 ranks"), HasSubstr("model.weight  F32 [3, 4]"),
                    HasSubstr("training.seed=5"), HasSubstr("\nwritten 2"), HasSubstr(" UTC\n")));
  EXPECT_THAT(tool("show", {"step=100"}).out, AllOf(HasSubstr("step 100"), Not(HasSubstr("overrides"))));
  auto told = snapshot_of(300);
  told.run.overrides = "- \"training.seed=5\"\n- \"token=***\"\n";
  told.run.config_hash = "3cb422a945a81aa7edd748a044e073cf51ad7e5c";
  told.run.optimizer = "Adam";
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
  damage_tensors_of("step-00000100");
  const auto found = tool("verify");
  EXPECT_EQ(found.code, 4);
  EXPECT_THAT(found.out, AllOf(HasSubstr("200  whole"), HasSubstr(".safetensors is damaged between its bytes 0")));
  EXPECT_EQ(tool("verify", {"step=200"}).code, 0);
  EXPECT_THAT(tool("verify", {"step=7"}).err, HasSubstr("there is no snapshot of step 7 at"));
}

TEST_F(SnapshotTool, VerifyNamesStepsWithoutAManifest) {
  std::filesystem::remove(folder_ / "run/step-00000200/manifest.json");
  const auto found = tool("verify");
  EXPECT_EQ(found.code, 0) << found.err;
  EXPECT_EQ(found.out, "200  begun and not finished, or its manifest.json was lost\n100  whole\n");
  EXPECT_EQ(tool("verify", {"step=100"}).out, "100  whole\n");
}

TEST_F(SnapshotTool, DiffNamesWhatDiffersAndEndsWith1) {
  const auto place = (folder_ / "run").string();
  EXPECT_EQ(tool("diff", {"other=" + place}).code, 0);
  const auto differs = tool("diff", {"other=" + place, "other_step=100"});
  EXPECT_EQ(differs.code, 1);
  EXPECT_THAT(differs.out, AllOf(HasSubstr("step: 200, 100"), HasSubstr("model.weight: largest difference 100"),
                                 Not(HasSubstr("exp_avg"))));
}

TEST_F(SnapshotTool, DiffComparesProgressOptimizerMetricsAndTheOrderOfParameters) {
  auto other = snapshot_of(200);
  other.run.epoch = 3;
  other.run.tokens = 7;
  other.run.optimizer = "SGD";
  other.run.metrics = {{"loss", 0.5}};
  std::swap(other.run.parameters[1], other.run.parameters[2]);
  save_snapshot(folder_ / "other", other);
  const auto differs = tool("diff", {"other=" + (folder_ / "other").string()});
  EXPECT_EQ(differs.code, 1);
  EXPECT_EQ(differs.out,
            "epoch: 2, 3\ntokens: 0, 7\noptimizer: , SGD\nval_loss: none, 0.5\n"
            "parameters: their order, or which of them decay, is not the same\n");
}

TEST_F(SnapshotTool, DiffDoesNotCountWhereTheRunsHaveWritten) {
  auto first = snapshot_of(300);
  first.run.settings.push_back({"training.save_dir", "\"first\""});
  first.run.settings.push_back({"training.metrics", "\"rows.jsonl\""});
  save_snapshot(folder_ / "first", first);
  auto other = snapshot_of(300);
  other.run.settings.push_back({"training.save_dir", "\"other\""});
  save_snapshot(folder_ / "other", other);
  const auto first_place = (folder_ / "first").string(), to_other = "other=" + (folder_ / "other").string();
  const auto same = tool_at(first_place, "diff", {to_other});
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_EQ(same.out, "");
  other.run.settings[0].value = "6";
  std::filesystem::remove_all(folder_ / "other");
  save_snapshot(folder_ / "other", other);
  const auto differs = tool_at(first_place, "diff", {to_other});
  EXPECT_EQ(differs.code, 1);
  EXPECT_EQ(differs.out, "training.seed: 5, 6\n");
}

TEST_F(SnapshotTool, SaysHowAStepIsNamedWhereItIsNamedAsMingptDoes) {
  const auto place = (folder_ / "run").string();
  for (const char* command : {"list", "show", "verify"}) {
    const auto refused = tool_at(place + ":100", command);
    EXPECT_EQ(refused.code, 4) << command;
    EXPECT_THAT(refused.err, HasSubstr("a step is named apart here: " + place + " with step=100")) << command;
  }
}

TEST_F(SnapshotTool, SaysHowACheckpointOfTorchDistributedBecomesAFile) {
  const auto place = folder_ / "with spaces";
  std::filesystem::create_directory(place);
  for (const char* name : {".metadata", "__0_0.distcp"}) std::ofstream{place / name} << "Python's";
  const auto refused = tool_at(place.string(), "convert", {"to=" + (folder_ / "new").string()});
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err,
              HasSubstr("torch.distributed.checkpoint.format_utils dcp_to_torch '" + place.string() + "/'"));
}

TEST_F(SnapshotTool, ConvertCountsTheTensorsThatItWrites) {
  const auto converted = [&](const std::string& to, const std::string& layout) {
    std::vector<std::string> words{"to=" + (folder_ / to).string()};
    if (!layout.empty()) words.push_back("layout=" + layout);
    return tool("convert", words).out;
  };
  EXPECT_THAT(converted("weights.pt", "state_dict"), HasSubstr("step 200: 3 tensors to"));
  EXPECT_THAT(converted("tutorial.pt", "torchrun_tutorial"), HasSubstr("step 200: 3 tensors to"));
  EXPECT_THAT(converted("all.pt", ""), HasSubstr("step 200: 10 tensors to")) << "with six moments and the step";
  EXPECT_THAT(converted("all.safetensors", ""), HasSubstr("step 200: 12 tensors to")) << "with two moving averages";
}

TEST_F(SnapshotTool, ShowAndDiffPrintSmallNumbers) {
  auto first = snapshot_of(300);
  first.run.metrics = {{"loss", 1e-9}};
  first.tensors.at("model.weight").zero_();
  save_snapshot(folder_ / "first", first);
  EXPECT_THAT(tool_at((folder_ / "first").string(), "show").out, HasSubstr("\nval_loss 1.0e-09\n"));
  auto other = first;
  other.run.metrics = {{"loss", 2e-9}};
  other.tensors.at("model.weight") = at::full({3, 4}, 0x1p-26);
  save_snapshot(folder_ / "other", other);
  EXPECT_EQ(tool_at((folder_ / "first").string(), "diff", {"other=" + (folder_ / "other").string()}).out,
            "val_loss: 1.0e-09, 2.0e-09\nmodel.weight: largest difference 1.4901161193847656e-08\n");
}

TEST_F(SnapshotTool, DiffComparesTheImaginaryPartsOfComplexNumbers) {
  auto first = snapshot_of(300), other = first;
  first.tensors.emplace("model.angles", at::complex(at::ones({3}), at::zeros({3})));
  other.tensors.emplace("model.angles", at::complex(at::ones({3}), at::full({3}, 0.25)));
  save_snapshot(folder_ / "first", first);
  save_snapshot(folder_ / "other", other);
  EXPECT_EQ(tool_at((folder_ / "first").string(), "diff", {"other=" + (folder_ / "other").string()}).out,
            "model.angles: largest difference 0.25\n");
}

TEST_F(SnapshotTool, DiffOfASnapshotWithANumberThatIsNoneFindsItEqualToItself) {
  auto other = snapshot_of(300);
  other.tensors.at("model.weight")[0][0] = std::nan("");
  save_snapshot(folder_ / "other", other);
  const auto place = (folder_ / "other").string();
  EXPECT_EQ(tool_at(place, "diff", {"other=" + place}).code, 0);
}

TEST_F(SnapshotTool, DiffTellsTypesThatDiffer) {
  auto other = snapshot_of(200);
  auto& weight = other.tensors.at("model.weight");
  weight = weight.to(at::kDouble);
  save_snapshot(folder_ / "other", other);
  const auto differs = tool("diff", {"other=" + (folder_ / "other").string()});
  EXPECT_EQ(differs.code, 1);
  EXPECT_EQ(differs.out, "model.weight: F32 [3, 4], F64 [3, 4]\n");
}

TEST_F(SnapshotTool, ConvertAndDiffTakeTheOneBeforeWhereTheNewestIsDamaged) {
  damage_tensors_of("step-00000200");
  const auto file = folder_ / "all.safetensors";
  const auto converted = tool("convert", {"to=" + file.string()});
  EXPECT_EQ(converted.code, 0) << converted.err;
  EXPECT_THAT(converted.out, HasSubstr("step 100: "));
  EXPECT_THAT(converted.err, HasSubstr("trying the snapshot before it"));
  EXPECT_TRUE(at::equal(read_safetensors(file).tensors.at("model.weight"), at::full({3, 4}, 100.0)));
  EXPECT_EQ(tool("diff", {"other=" + (folder_ / "run").string(), "other_step=100"}).code, 0);
  const auto asked_for = tool("convert", {"to=" + file.string(), "step=200"});
  EXPECT_EQ(asked_for.code, 4);
  EXPECT_THAT(asked_for.err, AllOf(HasSubstr("no usable snapshot of step 200"), HasSubstr("is damaged between")));
}

TEST_F(SnapshotTool, ConvertDoesNotTouchASnapshotThatIsThere) {
  const auto refused = tool("convert", {"to=" + (folder_ / "run").string(), "what=model"});
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err, HasSubstr("step-00000200/manifest.json is there already"));
  EXPECT_EQ(tool("verify").code, 0);
  EXPECT_EQ(load_snapshot(folder_ / "run")->tensors.size(), snapshot_of(200).tensors.size());
}

TEST_F(SnapshotTool, ConvertDoesNotWriteWhereARunSaves) {
  const auto place = folder_ / "busy";
  Folder busy{place};
  busy.prepare();
  ASSERT_TRUE(busy.claim("a run on " + host_name()));
  const auto refused = tool("convert", {"to=" + place.string()});
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err, HasSubstr("busy is in use by a run on "));
  EXPECT_FALSE(std::filesystem::exists(place / "step-00000200"));
}

TEST_F(SnapshotTool, ConvertedCopiesAreKeptByTheirMetricsAndDates) {
  for (const auto step : {300, 400, 500}) {
    auto snapshot = snapshot_of(step);
    snapshot.run.metrics = {{"loss", step == 300 ? 1.0 : 2.0}};
    snapshot.written_at = 1'000'000'000 + step;
    save_snapshot(folder_ / "run", snapshot);
    ASSERT_EQ(tool("convert", {"to=" + (folder_ / "copy").string(), "step=" + std::to_string(step)}).code, 0);
  }
  const auto pruned = tool_at((folder_ / "copy").string(), "prune", {"keep_last=1", "keep_best=1"});
  EXPECT_EQ(pruned.code, 0) << pruned.err;
  const auto shown = tool_at((folder_ / "copy").string(), "show", {"step=300"});
  EXPECT_THAT(shown.out, AllOf(HasSubstr("written 2001-09-09 01:51:40 UTC"), HasSubstr("loss 1.0")));
}

TEST_F(SnapshotTool, NamesTheSettingOfASecondPlace) {
  const auto diff = tool("diff", {"runs/b"}), convert = tool("convert", {"b.pt", "step=100"});
  EXPECT_EQ(diff.code, 2);
  EXPECT_EQ(diff.err, "ddpxx: error: argument 4: \"runs/b\": write other=runs/b\n");
  EXPECT_EQ(convert.code, 2);
  EXPECT_EQ(convert.err, "ddpxx: error: argument 4: \"b.pt\": write to=b.pt\n");
  EXPECT_THAT(tool("diff", {"--step=-1", "othr=runs/b"}).err,
              HasSubstr("argument 5: \"othr=runs/b\": unknown key; did you mean other?"));
}

TEST_F(SnapshotTool, ConvertRefusesFilesThatItDoesNotWrite) {
  for (const char* name : {"weights.pth", "last.ckpt", "s3://bucket/weights.safetensors"}) {
    const auto refused = tool("convert", {"to=" + (name[0] == 's' ? name : (folder_ / name).string())});
    EXPECT_EQ(refused.code, 2) << name;
    EXPECT_THAT(refused.err, HasSubstr(name));
    EXPECT_FALSE(std::filesystem::exists(folder_ / name));
  }
  EXPECT_EQ(tool("convert", {"to=" + (folder_ / "run-1.5").string()}).code, 0);
  EXPECT_EQ(tool("convert", {"to=" + (folder_ / "best.ckpt/").string()}).code, 0)
      << "a path that ends with a slash is a place for snapshots";
  EXPECT_EQ(load_snapshot(folder_ / "best.ckpt")->run.step, 200);
  EXPECT_EQ(tool_at((folder_ / "best.ckpt").string(), "convert", {"to=" + (folder_ / "again").string()}).code, 0);
}

TEST_F(SnapshotTool, ConvertRefusesTheLayoutOfAPtFileForOtherTargets) {
  for (const char* name : {"weights.safetensors", "copy"}) {
    const auto refused = tool("convert", {"to=" + (folder_ / name).string(), "layout=guide"});
    EXPECT_EQ(refused.code, 2) << name;
    EXPECT_THAT(refused.err, HasSubstr("layout=guide is one of a .pt file"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / name));
  }
}

TEST_F(SnapshotTool, ConvertsToOneFileToPythonAndToAnotherPlace) {
  const auto file = folder_ / "all.safetensors";
  ASSERT_EQ(tool("convert", {"to=" + file.string(), "what=model"}).code, 0);
  const auto tensors = read_safetensors(file).tensors;
  EXPECT_EQ(tensors.size(), 3u);
  EXPECT_TRUE(at::equal(tensors.at("model.weight"), at::full({3, 4}, 200.0)));
  const auto pt = folder_ / "weights.pt";
  const auto to_python = tool("convert", {"to=" + pt.string(), "layout=torchrun_tutorial"});
  ASSERT_EQ(to_python.code, 0);
  EXPECT_THAT(to_python.out,
              HasSubstr("the moving average of the parameters, with which the run was evaluated, is left out"));
  EXPECT_TRUE(at::equal(from_python(read_pt(pt)).model.at("weight"), at::full({3, 4}, 200.0)));
  ASSERT_EQ(tool("convert", {"to=" + (folder_ / "copy").string(), "step=100"}).code, 0);
  EXPECT_EQ(load_snapshot(folder_ / "copy")->run.step, 100);
  auto with_name = snapshot_of(300);
  with_name.run.optimizer = "AdamW";
  save_snapshot(folder_ / "run", with_name);
  const auto model_alone = tool("convert", {"to=" + (folder_ / "weights").string(), "what=model"});
  ASSERT_EQ(model_alone.code, 0);
  EXPECT_EQ(load_snapshot(folder_ / "weights")->run.optimizer, "")
      << "there is no state of an optimizer to resume from";
  EXPECT_THAT(model_alone.out, HasSubstr("the moving average of the parameters"));
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
    EXPECT_EQ(entries.find("ema"), nullptr) << "Python's optimizers have no moving average of the parameters";
    return entries.find("exp_avg")->get<at::Tensor>("exp_avg").view(-1)[0].item<double>();
  };
  const auto groups_of = [](const PickleValue& optimizer) {
    return optimizer.get<PickleDict>("it").find("param_groups")->get<PickleList>("param_groups");
  };
  const auto two = converted("mingpt_ddp");
  ASSERT_EQ(groups_of(two).size(), 2u) << "expected the parameters with weight decay, then the others, each by name";
  EXPECT_EQ(first_of(two, 0), 0.0);
  EXPECT_EQ(first_of(two, 1), 'b');
  EXPECT_EQ(first_of(two, 2), 't');
  const auto one = converted("guide");
  const auto groups = groups_of(one);
  ASSERT_EQ(groups.size(), 1u) << "expected one group, as with model.parameters()";
  EXPECT_EQ(first_of(one, 1), 't');
  EXPECT_EQ(first_of(one, 2), 'b');
  const auto& group = groups[0].get<PickleDict>("a group");
  EXPECT_EQ(group.find("lr")->get<double>("lr"), 0.02);
  EXPECT_EQ(group.find("betas")->get<PickleTuple>("betas").items.at(1).get<double>("beta2"), 0.95);
  EXPECT_TRUE(converted("torchrun_tutorial").is_none());
}

TEST_F(SnapshotTool, ConvertsTheDecayOfAdamAndSaysWhereOneGroupCannotTellWhatDecays) {
  auto snapshot = snapshot_of(300);
  snapshot.run.settings.push_back({"optimizer.weight_decay", "0.1"});
  snapshot.run.optimizer = "Adam";
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
  for (auto& parameter : snapshot.run.parameters) parameter.decays = false;
  snapshot.run.optimizer = "AdamW";
  EXPECT_THAT(convert(snapshot, "guide"), Not(HasSubstr("one group")));
  EXPECT_EQ(decay(0), 0.0) << "no parameter has weight decay";
  EXPECT_TRUE(group(0).find("decoupled_weight_decay")->get<bool>("the flag"));
}

TEST_F(SnapshotTool, RefusesToConvertAnOptimizerWhoseParameterGroupsTheLayoutCannotHave) {
  auto snapshot = snapshot_of(300);
  snapshot.run.settings.push_back({"parameter_groups.learning_rate", "{}"});
  snapshot.run.settings.push_back({"parameter_groups.weight_decay", "{\"bias\": 0.2}"});
  save_snapshot(folder_ / "run", snapshot);
  const auto file = folder_ / "groups.pt";
  for (const char* layout : {"layout=mingpt_ddp", "layout=guide"}) {
    const auto ended = tool("convert", {"to=" + file.string(), layout});
    EXPECT_EQ(ended.code, 2);
    EXPECT_THAT(ended.err, HasSubstr("cannot say so: layout=state_dict converts the weights alone"));
    EXPECT_FALSE(std::filesystem::exists(file));
  }
  EXPECT_EQ(tool("convert", {"to=" + file.string(), "layout=state_dict"}).code, 0);
}

TEST_F(SnapshotTool, ConvertsWithoutAnOptimizerThatTorchOptimDoesNotHave) {
  auto lamb = snapshot_of(300), muon = lamb;
  lamb.run.optimizer = "LAMB";                                                  // it has the moments of AdamW
  muon.tensors.emplace("optimizer.momentum_buffer.weight", at::zeros({3, 4}));  // older versions recorded no name
  for (const auto& snapshot : {lamb, muon}) {
    std::filesystem::remove_all(folder_ / "run");
    save_snapshot(folder_ / "run", snapshot);
    const auto ended = tool("convert", {"to=" + (folder_ / "own.pt").string()});
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_THAT(ended.out, HasSubstr("without an optimizer's state: the snapshot has none of AdamW, Adam or SGD"));
    EXPECT_TRUE(from_python(read_pt(folder_ / "own.pt")).optimizer.is_none());
  }
}

TEST_F(SnapshotTool, ConvertsWithoutAnOptimizerWhereTheOrderIsNotKnown) {
  auto old = snapshot_of(300);
  old.run.parameters.clear();
  save_snapshot(folder_ / "run", old);
  const auto file = folder_ / "old.pt";
  EXPECT_THAT(tool("convert", {"to=" + file.string()}).out,
              HasSubstr("without an optimizer's state: the snapshot has none of AdamW, Adam or SGD, or does not say"));
  EXPECT_THAT(tool("convert", {"to=" + file.string(), "layout=state_dict"}).out,
              HasSubstr("without an optimizer's state: layout=state_dict has no place for it"));
  ASSERT_EQ(tool("convert", {"to=" + file.string()}).code, 0);
  EXPECT_TRUE(from_python(read_pt(file)).optimizer.is_none());
}

TEST_F(SnapshotTool, ConvertsPythonsFilesIntoSnapshots) {
  for (const char* layout : {"mingpt_ddp", "guide", "torchvision"}) {
    const auto file = (folder_ / layout).string() + ".pt", place = (folder_ / layout).string();
    ASSERT_EQ(tool("convert", {"to=" + file, std::string{"layout="} + layout}).code, 0);
    const auto back = tool_at(file, "convert", {"to=" + place});
    ASSERT_EQ(back.code, 0) << back.err;
    const auto snapshot = load_snapshot(place).value();
    EXPECT_EQ(snapshot.run.step, 200);
    EXPECT_EQ(snapshot.run.epoch, 2);
    EXPECT_EQ(snapshot.run.position, 0);
    EXPECT_EQ(snapshot.run.optimizer, "AdamW");
    for (const auto& [name, tensor] : snapshot_of(200).tensors)
      if (!name.starts_with("optimizer.ema."))
        EXPECT_TRUE(snapshot.tensors.contains(name) && at::equal(snapshot.tensors.at(name), tensor)) << name;
    EXPECT_EQ(snapshot.tensors.size(), snapshot_of(200).tensors.size() - 2)
        << "all tensors but the averages must come back";
    EXPECT_THAT(tool_at(place, "show").out,
                AllOf(HasSubstr("optimizer.learning_rate=0.02  # "), HasSubstr("optimizer.beta2=0.95  # ")));
    // what=model must be converted to another place than the whole snapshot.
    ASSERT_EQ(tool_at(file, "convert", {"to=" + place + "-model", "what=model"}).code, 0);
    EXPECT_EQ(load_snapshot(place + "-model")->tensors.size(), 3U);
  }
}

TEST_F(SnapshotTool, TakesAFileWithoutAnOptimizerForAnyAtTheStepThatIsTold) {
  const auto file = (folder_ / "tutorial.pt").string(), place = (folder_ / "tutorial").string();
  ASSERT_EQ(tool("convert", {"to=" + file, "layout=torchrun_tutorial"}).code, 0);
  const auto ended = tool_at(file, "convert", {"to=" + place, "step=70"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out,
              HasSubstr("no optimizer's state: the optimizer of the run that resumes begins anew, at step 70"));
  const auto snapshot = load_snapshot(place).value();
  EXPECT_EQ(snapshot.run.epoch, 2);
  EXPECT_EQ(snapshot.run.step, 70);
  EXPECT_EQ(snapshot.run.optimizer, "");
  EXPECT_EQ(snapshot.tensors.size(), 3U) << "expected the tensors of the model only";
  ASSERT_EQ(tool_at(file, "convert", {"to=" + place + "-first"}).code, 0);
  EXPECT_EQ(load_snapshot(place + "-first")->run.step, 0);
}

TEST_F(SnapshotTool, AsksForTheStepThatSGDsFilesDoNotTell) {
  auto sgd = snapshot_of(300);
  std::erase_if(sgd.tensors, [](const auto& each) { return each.first.starts_with("optimizer."); });
  for (const auto& [name, decays] : sgd.run.parameters)
    sgd.tensors.emplace("optimizer.momentum_buffer." + name,
                        at::full_like(sgd.tensors.at("model." + name), static_cast<double>(name[0])));
  sgd.run.optimizer = "SGD";
  save_snapshot(folder_ / "run", sgd);
  const auto file = (folder_ / "sgd.pt").string(), place = (folder_ / "sgd").string();
  ASSERT_EQ(tool("convert", {"to=" + file, "layout=guide"}).code, 0);
  const auto refused = tool_at(file, "convert", {"to=" + place});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("sgd.pt: SGD's state"), HasSubstr("set step=N")));
  const auto ended = tool_at(file, "convert", {"to=" + place, "step=300"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto snapshot = load_snapshot(place).value();
  EXPECT_EQ(snapshot.run.step, 300);
  EXPECT_EQ(snapshot.run.optimizer, "SGD");
  for (const auto& [name, tensor] : sgd.tensors) EXPECT_TRUE(at::equal(snapshot.tensors.at(name), tensor)) << name;
}

TEST_F(SnapshotTool, RefusesStepsAndEpochsOfAFileThatAreNoCounts) {
  const auto file = (folder_ / "odd.pt").string(), place = (folder_ / "odd").string();
  auto odd = snapshot_of(300);
  odd.tensors.insert_or_assign("optimizer.step", at::full({}, 0.5));
  save_snapshot(folder_ / "run", odd);
  ASSERT_EQ(tool("convert", {"to=" + file, "layout=guide"}).code, 0);
  EXPECT_THAT(tool_at(file, "convert", {"to=" + place}).err, HasSubstr("step is 0.500000, which is not a count"));
  auto checkpoint = from_python(read_pt(file));
  checkpoint.epoch = -1;
  write_pt(file, to_python(checkpoint));
  EXPECT_THAT(tool_at(file, "convert", {"to=" + place}).err, HasSubstr("epoch is -1, which is not a count"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "odd"));
}

TEST_F(SnapshotTool, SaysWhereAFilesOptimizerDoesNotFitItsModel) {
  const auto file = (folder_ / "odd.pt").string();
  ASSERT_EQ(tool("convert", {"to=" + file, "layout=guide"}).code, 0);
  auto checkpoint = from_python(read_pt(file));
  checkpoint.names = {"bias", "weight", "table"};
  write_pt(file, to_python(checkpoint));
  const auto refused = tool_at(file, "convert", {"to=" + (folder_ / "odd").string()});
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("odd.pt: the optimizer's state does not fit"), HasSubstr("what=model")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "odd"));
}

TEST_F(SnapshotTool, AddsTheMasksOfMinGPTDdpAndPassesOverThem) {
  auto gpt = snapshot_of(300);
  gpt.run.parameters.clear();
  gpt.tensors = {{"model.emb_stem.pos_emb", at::zeros({1, 5, 4})},
                 {"model.blocks.0.attn.attn.in_proj_weight", at::ones({12, 4})},
                 {"model.blocks.1.attn.attn.in_proj_weight", at::ones({12, 4})}};
  save_snapshot(folder_ / "run", gpt);
  const auto file = (folder_ / "gpt.pt").string(), place = (folder_ / "gpt").string();
  ASSERT_EQ(tool("convert", {"to=" + file}).code, 0);
  const auto model = from_python(read_pt(file)).model;
  ASSERT_EQ(model.size(), 5U);
  for (const char* name : {"blocks.0.attn.mask", "blocks.1.attn.mask"}) {
    EXPECT_EQ(model.at(name).scalar_type(), at::kFloat);
    EXPECT_TRUE(at::equal(model.at(name), at::ones({5, 5}).tril().view({1, 1, 5, 5})));
  }
  ASSERT_EQ(tool_at(file, "convert", {"to=" + place, "what=model"}).code, 0);
  EXPECT_EQ(load_snapshot(place)->tensors.size(), 3U);
}

TEST_F(SnapshotTool, PrunesOnlyWhenToldWhatToKeep) {
  EXPECT_EQ(tool("prune").code, 2);
  EXPECT_THAT(tool("prune", {"keep_last=0"}).err, HasSubstr("keep_last"));
  EXPECT_THAT(tool("prune", {"keep_last=-1"}).err, HasSubstr("at least 1"));
  EXPECT_EQ(load_snapshot(folder_ / "run")->run.step, 200);
  const auto pruned = tool("prune", {"keep_last=1"});
  EXPECT_EQ(pruned.code, 0) << pruned.err;
  EXPECT_THAT(pruned.out, HasSubstr("1 of 2 snapshots removed"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / "step-00000100"));
}

TEST_F(SnapshotTool, PrunesNothingWhereNoSnapshotIs) {
  const auto expect_refused = [&](const std::string& place, const std::string& why) {
    const auto refused = tool_at(place, "prune", {"keep_last=1"});
    EXPECT_EQ(refused.code, 4) << place;
    EXPECT_THAT(refused.err, HasSubstr("there is no snapshot at " + place + why));
  };
  const auto other = (folder_ / "other").string() + '/', step = (folder_ / "run" / "step-00000200").string() + '/';
  expect_refused(other, "");
  expect_refused(step, ", which is one snapshot itself");
  std::filesystem::create_directory(other);
  expect_refused(other, "");
  EXPECT_TRUE(std::filesystem::is_empty(other));
}

TEST_F(SnapshotTool, TakesNoEmptyPlaceForTheFolderInWhichItRuns) {
  const auto refused = StartedProgram{
      {"/bin/sh", "-c", "cd \"$0\" && exec \"$1\" snapshot prune '' keep_last=1", (folder_ / "run").string(),
       program_folder() +
           "/ddpxx"}}.wait();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("ddpxx snapshot prune needs a place"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run" / "step-00000100")) << "an older snapshot is gone";
}

TEST_F(SnapshotTool, PruneKeepsByEpochsAndByTime) {
  save_snapshot(folder_ / "run", snapshot_of(300));
  EXPECT_EQ(tool("prune", {"keep_last=1", "keep_every_epochs=2"}).code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run" / "step-00000100"))
      << "the first snapshot after two epochs must be kept";
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / "step-00000200"));
  EXPECT_EQ(tool("prune", {"keep_last=1", "keep_every_time=1h30m"}).code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run" / "step-00000100")) << "the oldest snapshot must be kept";
  EXPECT_EQ(tool("prune", {"keep_last=1"}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / "step-00000100"));
}

TEST_F(SnapshotTool, ContinuesAfterASnapshotOfAnotherVersion) {
  auto text = StartedProgram::text_of(folder_ / "run" / "step-00000200" / "manifest.json");
  text.replace(text.find("ddpxx snapshot 1"), 16, "ddpxx snapshot 9");
  text.resize(text.rfind(",\"crc32c\""));
  const auto sum = crc32c(bytes_of(text));
  std::ofstream{folder_ / "run" / "step-00000200" / "manifest.json"} << text << ",\"crc32c\":\"" << sums_text({sum})
                                                                     << "\"}\n";
  for (const char* command : {"list", "verify"}) {
    const auto told = tool(command);
    EXPECT_EQ(told.code, 4) << command;
    EXPECT_THAT(told.out, AllOf(HasSubstr("step-00000200/manifest.json was written by another version"),
                                testing::ContainsRegex("100 .*(whole|3 ranks)")));
    EXPECT_THAT(told.err, HasSubstr("1 of the snapshots could not be read"));
  }
}

/// Runs commands on snapshots of the steps 100 to 300. When the command reads the first of them, another program saves
/// step 400 and removes the others but step 100.
class SnapshotToolBesideARun : public testing::Test {
 protected:
  template <class Command>
  static std::string output_of(Command&& command) {
    auto memory = std::make_unique<MemoryStorage>();
    auto& storage = *memory;
    const auto save = [&storage](std::int64_t step) {
      save_snapshot(storage, {.run = {.step = step}, .tensors = {{"model.x", at::ones({2})}}});
    };
    for (const auto step : {100, 200, 300}) save(step);
    storage.before_next_text = [&storage, save] {
      save(400);
      const Snapshots snapshots{storage};
      for (const auto& stored : snapshots.list())
        if (stored.step == 200 || stored.step == 300) snapshots.remove(stored);
    };
    testing::internal::CaptureStdout();
    try {
      command(SnapshotCommands{"memory", std::move(memory)});
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
    return testing::internal::GetCapturedStdout();
  }
};

TEST_F(SnapshotToolBesideARun, ListAndVerifyPassOverWhatIsRemovedMeanwhile) {
  const auto listed = output_of([](const SnapshotCommands& commands) { commands.list({}); });
  EXPECT_THAT(listed, AllOf(HasSubstr(" 100 "), Not(HasSubstr(" 200 ")), Not(HasSubstr(" 300 "))));
  EXPECT_EQ(output_of([](const SnapshotCommands& commands) { commands.verify({}); }), "100  whole\n");
}

TEST_F(SnapshotToolBesideARun, ShowTakesTheNewerOne) {
  EXPECT_THAT(output_of([](const SnapshotCommands& commands) { commands.show({}); }), HasSubstr("step 400,"));
}

TEST_F(SnapshotTool, DiffTakesTheNewerOneWhereARunRemovesTheOneThatItCompares) {
  auto memory = std::make_unique<MemoryStorage>();
  auto& storage = *memory;
  save_snapshot(storage, snapshot_of(300));
  const auto replace = [&storage] {
    save_snapshot(storage, snapshot_of(400));
    const Snapshots snapshots{storage};
    snapshots.remove(snapshots.list().back());
  };
  // The first read looks for damage, the second one is for the comparison.
  storage.before_next_read = [&storage, replace] { storage.before_next_read = replace; };
  save_snapshot(folder_ / "other", snapshot_of(400));
  testing::internal::CaptureStdout();
  EXPECT_NO_THROW(SnapshotCommands("memory", std::move(memory)).diff({.other = (folder_ / "other").string()}));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "") << "step 400 was to be compared with step 400";
}

TEST_F(SnapshotTool, SaysThatThereIsNoSnapshotAndThatItsOutputFailed) {
  const auto none = tool_at((folder_ / "none").string(), "list");
  EXPECT_EQ(none.code, 4);
  EXPECT_THAT(none.err, HasSubstr("there is no snapshot at"));
  const auto step = (folder_ / "run/step-00000100").string();
  for (const char* command : {"list", "verify", "show"})
    EXPECT_THAT(tool_at(step, command).err,
                HasSubstr("which is one snapshot itself: name " + (folder_ / "run").string() + " with step=100"))
        << command;
  EXPECT_EQ(tool_at("--help", "list").code, 0);
  EXPECT_THAT(tool_at("--help", "list").out, HasSubstr("snapshot COMMAND PLACE"));
  const auto unheard = StartedProgram{
      {"/bin/sh", "-c",
       program_folder() + "/ddpxx snapshot list " + (folder_ / "run").string() +
           " >/dev/full"}}.wait();
  EXPECT_EQ(unheard.code, 4);
  EXPECT_THAT(unheard.err, HasSubstr("the output could not be written"));
}

TEST_F(SnapshotTool, SaysWhatItDoesNotUnderstand) {
  const auto command = tool("verfy");
  EXPECT_EQ(command.code, 2);
  EXPECT_THAT(command.err, HasSubstr("did you mean verify?"));
  EXPECT_EQ(tool("verify", {"stpe=1"}).code, 2);
  EXPECT_EQ(tool("list", {"step=100"}).code, 2);
  const auto pruned = tool("prune", {"keep_last=1", "step=200"});  // a setting of other commands
  EXPECT_EQ(pruned.code, 2);
  EXPECT_THAT(pruned.err, HasSubstr("step"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run" / "step-00000100"));
  const auto bare = StartedProgram{{program_folder() + "/ddpxx", "snapshot"}}.wait();
  EXPECT_EQ(bare.code, 2);
  EXPECT_THAT(bare.out, HasSubstr("snapshot COMMAND PLACE"));
  for (const char* option : {"--help", "-h"}) {
    const auto help = StartedProgram{{program_folder() + "/ddpxx", option}}.wait();
    EXPECT_EQ(help.code, 0) << option;
    EXPECT_THAT(help.out, HasSubstr("snapshot COMMAND PLACE")) << option;
  }
}

}  // namespace
}  // namespace ddpxx::tool_test
