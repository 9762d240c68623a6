// Reads files that nanoGPT, Lightning and Hugging Face have written, as snapshots and as weights.
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/interop/model_file.hpp>
#include <ddpxx/interop/pt_file.hpp>
#include <ddpxx/interop/state_dicts.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/nn/gpt2_weights.hpp>
#include <ddpxx/snapshot/safetensors.hpp>
#include <ddpxx/snapshot/snapshot.hpp>

#include "../../tools/python_checkpoint.hpp"
#include "../launch/started_program.hpp"
#include "../parity/python.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::foreign_files_test {
namespace {

using testing::HasSubstr;

class ForeignFiles : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    run_python("../interop/foreign_files.py", {folder_->path().string()});
  }
  static void TearDownTestSuite() { delete folder_; }

  static std::string path(const std::string& name) { return (*folder_ / name).string(); }
  static Ended convert(const std::string& from, const std::string& to, const std::string& more = "what=all") {
    return StartedProgram{{program_folder() + "/ddpxx", "snapshot", "convert", from, "to=" + to, more}}.wait();
  }
  static Ended mingpt(std::vector<std::string> words) {
    words.insert(words.begin(), program_folder() + "/mingpt");
    words.insert(words.end(), {"training.device=cpu", "training.max_epochs=0"});
    return StartedProgram{words}.wait();
  }

  static inline TemporaryFolder* folder_ = nullptr;
};

GPT gpt() { return GPT{GPTConfig{.n_layer = 2, .n_head = 2, .n_embd = 16}, 11, 8}; }

TEST_F(ForeignFiles, NanoGPTsCheckpointGoesOnAtItsStep) {
  const auto ended = convert(path("ckpt.pt"), path("nano"));
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("nanoGPT decays the embeddings and the head that is tied to them"));
  EXPECT_THAT(ended.out, HasSubstr("set data.format=tokens data.vocab_size=11"));
  const auto snapshot = load_snapshot(path("nano")).value();
  EXPECT_EQ(snapshot.run.step, 3);
  EXPECT_EQ(snapshot.run.optimizer, "AdamW");
  const auto value = read_pt(path("ckpt.pt"));
  const auto& file = value.get<PickleDict>("the file");
  const auto& model = file.find("model")->get<PickleDict>("model");
  const GPT named{GPTConfig{.n_layer = 2, .n_head = 2, .n_embd = 16, .tied_head = true}, 11, 8};
  for (const auto& item : named.named_parameters()) {
    const auto& name = item.key();
    const auto& written = model.find("_orig_mod." + name)->get<at::Tensor>(name);
    EXPECT_TRUE(at::equal(snapshot.tensors.at("model." + name), written)) << name;
    EXPECT_EQ(snapshot.tensors.at("optimizer.exp_avg." + name).sizes(), written.sizes()) << name;
  }
  const auto& states = file.find("optimizer")->get<PickleDict>("optimizer").find("state")->get<PickleDict>("state");
  const auto& first = states.entries.at(0).second.get<PickleDict>("a state");
  EXPECT_TRUE(at::equal(snapshot.tensors.at("optimizer.exp_avg.transformer.wte.weight"),
                        first.find("exp_avg")->get<at::Tensor>("exp_avg")));
  EXPECT_FALSE(snapshot.tensors.contains("model.lm_head.weight")) << "it is one weight with the token embedding";
  EXPECT_EQ(snapshot.tensors.at("optimizer.step").item<float>(), 3);
  for (const auto& setting : snapshot.run.settings)
    if (setting.path == "optimizer.beta2") EXPECT_EQ(setting.value, "0.95");
}

TEST_F(ForeignFiles, NanoGPTsNetworkIsThatOfTheRunsThatGoOnWithIt) {
  const auto place = path("tokens");
  const auto converted = convert(path("tokens.pt"), place);
  ASSERT_EQ(converted.code, 0) << converted.err;
  EXPECT_THAT(converted.out, HasSubstr("model.bias=false model.gelu=\"exact\" model.tied_head=true"));
  std::map<std::string, std::string> recorded;
  const auto snapshot = load_snapshot(place).value();
  for (const auto& [setting, value, resume, origin] : snapshot.run.settings) {
    recorded.emplace(setting, value);
    if (setting.starts_with("model.")) EXPECT_EQ(origin, "model_args of " + path("tokens.pt"));
  }
  EXPECT_EQ(recorded.at("model.n_head"), "2");
  EXPECT_EQ(recorded.at("data.format"), "\"tokens\"");

  const auto generated = mingpt({"generate", "--from", place, "generate.prompt=1 2", "generate.tokens=3"});
  EXPECT_EQ(generated.code, 0) << generated.err;
  const auto tokens = folder_->file("train.bin", std::string(200, '\0'));
  const auto going_on = mingpt({"--from", place, "data.path=" + tokens, "training.max_steps=4", "data.batch_size=2"});
  EXPECT_EQ(going_on.code, 0) << going_on.err;
  EXPECT_THAT(going_on.out, HasSubstr("step 4/4"));
  const auto config = folder_->file("train.py", "n_layer = 2\nn_head = 2\nn_embd = 16\nblock_size = 8\n");
  const auto beside_a_file =
      mingpt({config, "data.format=tokens", "data.path=" + tokens, "training.save_dir=" + place, "training.max_steps=5",
              "training.eval_every=0", "training.save_every=0", "data.batch_size=2"});
  EXPECT_EQ(beside_a_file.code, 0) << beside_a_file.err;
  EXPECT_THAT(beside_a_file.out, HasSubstr("step 5/5"));
}

TEST_F(ForeignFiles, WeightsOfAnotherNetworkAreRefusedWhereTheirShapesDoNotShowIt) {
  const auto begin = [](const std::string& from, const std::vector<std::string>& more) {
    std::vector<std::string> words{
        "init_from=" + path(from), "data.path=" + folder_->file("few.bin", std::string(200, '\0')),
        "data.format=tokens",      "data.vocab_size=11",
        "data.block_size=8",       "model.n_layer=2",
        "model.n_embd=16",         "training.max_steps=1",
        "data.batch_size=2"};
    words.insert(words.end(), more.begin(), more.end());
    return mingpt(words);
  };
  ASSERT_EQ(convert(path("ckpt.pt"), path("weights"), "what=model").code, 0);
  for (const auto& [from, source] : {std::pair{"ckpt.pt", "nanoGPT's file"}, {"weights", "the snapshot"}}) {
    const auto wrong = begin(from, {"model.n_head=4", "model.bias=false", "model.tied_head=true"});
    EXPECT_EQ(wrong.code, 4);
    EXPECT_THAT(wrong.err, HasSubstr(std::string{"these are the weights of another network:\n  n_head: 2 in "} +
                                     source + ", 4 in this run\n  bias: true in " + source +
                                     ", false in this run\nset model.n_head=2 model.bias=true"));
    for (const auto& [form, warns] : {std::pair{"null", true}, {"tanh", false}, {"exact", false}}) {
      const auto begun = begin(from, {"model.n_head=2", "model.tied_head=true", std::string{"model.gelu="} + form});
      EXPECT_EQ(begun.code, 0) << begun.err;
      EXPECT_EQ(begun.err.find("set model.gelu=exact, or model.gelu=tanh if that is intended") != std::string::npos,
                warns)
          << from << ' ' << form << begun.err;
    }
  }
  EXPECT_EQ(begin("ckpt.pt", {"model.n_head=2"}).code, 0) << "expected a head that begins as a copy of the embedding";
  EXPECT_THAT(begin("weights", {"model.n_head=2"}).err, HasSubstr("set model.tied_head=true"));
}

TEST_F(ForeignFiles, LightningsCheckpointGoesOnAtItsStepAndEpoch) {
  for (const auto& [file, steps, epoch, moment] :
       {std::tuple{"last", 5, 3, "exp_avg"}, std::tuple{"sgd", 4, 2, "momentum_buffer"}}) {
    const auto ended = convert(path(file + std::string{".ckpt"}), path(file));
    ASSERT_EQ(ended.code, 0) << ended.err;
    const auto snapshot = load_snapshot(path(file)).value();
    EXPECT_EQ(snapshot.run.step, steps);
    EXPECT_EQ(snapshot.run.epoch, epoch) << file;
    EXPECT_EQ(snapshot.tensors.at("model.0.weight").sizes(), (std::vector<std::int64_t>{4, 3}));
    EXPECT_TRUE(snapshot.tensors.contains(std::string{"optimizer."} + moment + ".1.bias"));
  }
}

TEST_F(ForeignFiles, ACheckpointOfTwoOptimizersIsConvertedAsAModelOnly) {
  const auto whole = convert(path("two.ckpt"), path("two"));
  EXPECT_EQ(whole.code, 4);
  EXPECT_THAT(whole.err, HasSubstr("two.ckpt: the checkpoint has 2 optimizers, and a run has one: what=model"));
  EXPECT_EQ(convert(path("two.ckpt"), path("two"), "what=model").code, 0);
  EXPECT_EQ(read_model_file(path("two.ckpt")).size(), 4U);
}

TEST_F(ForeignFiles, GPT2sWeightsAreTurnedAndNamedAndHaveNoOptimizer) {
  const auto ended = convert(path("model.safetensors"), path("gpt2"));
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto snapshot = load_snapshot(path("gpt2")).value();
  const auto expected = read_model_file(path("model.pt"));
  EXPECT_EQ(snapshot.tensors.size(), expected.size() + 1) << "expected the head as well, and no attention mask";
  for (const auto& [name, tensor] : expected)
    EXPECT_TRUE(at::equal(snapshot.tensors.at("model.transformer." + name), tensor)) << name;
  EXPECT_TRUE(at::equal(snapshot.tensors.at("model.lm_head.weight"), expected.at("wte.weight")));
}

TEST_F(ForeignFiles, GPT2sWeightsAreTheSameSnapshotFromBothKindsOfFile) {
  ASSERT_EQ(convert(path("model.safetensors"), path("from_safetensors")).code, 0);
  const auto ended = convert(path("model.bin"), path("from_bin"));
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto expected = load_snapshot(path("from_safetensors")).value().tensors;
  const auto tensors = load_snapshot(path("from_bin")).value().tensors;
  ASSERT_EQ(tensors.size(), expected.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(at::equal(tensors.at(name), tensor)) << name;
}

TEST_F(ForeignFiles, EveryFileLoadsIntoAModel) {
  for (const char* name : {"ckpt.pt", "model.safetensors"}) {
    auto model = gpt();
    load_gpt2(model, read_model_file(path(name)));
    const auto parameters = parameters_by_name(model);
    EXPECT_TRUE(at::equal(parameters.at("transformer.wte.weight"), parameters.at("lm_head.weight"))) << name;
  }
  auto turned = gpt(), straight = gpt();
  load_gpt2(turned, read_model_file(path("model.safetensors")));
  load_gpt2(straight, read_model_file(path("model.pt")));
  const auto expected = parameters_by_name(straight);
  for (const auto& [name, tensor] : parameters_by_name(turned))
    EXPECT_TRUE(at::equal(tensor, expected.at(name))) << name;
}

TEST_F(ForeignFiles, OfAnotherOptimizerAreConvertedAsAModelOnly) {
  for (const std::string name : {"RAdam", "NAdam", "RMSprop"}) {
    const auto whole = convert(path(name + ".ckpt"), path(name));
    EXPECT_EQ(whole.code, 2) << name;
    EXPECT_THAT(whole.err, HasSubstr("none of AdamW, Adam and SGD: convert the model alone, with what=model"));
    EXPECT_EQ(convert(path(name + ".ckpt"), path(name), "what=model").code, 0) << name;
  }
}

TEST_F(ForeignFiles, OfAMaximizingOptimizerOrOneWithAmsgradAreConvertedAsAModelOnly) {
  for (const std::string name : {"amsgrad", "maximize"}) {
    const auto whole = convert(path(name + ".ckpt"), path(name));
    EXPECT_EQ(whole.code, 2) << name;
    EXPECT_THAT(whole.err, HasSubstr(name + "=True, which no optimizer here computes: convert the model alone"));
    EXPECT_EQ(convert(path(name + ".ckpt"), path(name), "what=model").code, 0) << name;
  }
}

/// The first moment of the parameter that has this number in Python's optimizer.
at::Tensor moment_in_python(const std::string& file, std::int64_t number) {
  const auto checkpoint = from_python(read_pt(file));
  const auto& optimizer = checkpoint.optimizer.get<PickleDict>("optimizer");
  for (const auto& [key, state] : optimizer.find("state")->get<PickleDict>("state").entries)
    if (key.get<std::int64_t>("a number") == number)
      return state.get<PickleDict>("a state").find("exp_avg")->get<at::Tensor>("exp_avg");
  return {};
}

TEST_F(ForeignFiles, TwoGroupsWhoseOrderIsNotKnownAreConvertedAsAModelOnly) {
  const auto whole = convert(path("unnamed.ckpt"), path("unnamed"));
  EXPECT_EQ(whole.code, 4);
  EXPECT_THAT(whole.err, HasSubstr("unnamed.ckpt: the file does not say whether the parameters in the optimizer's two "
                                   "groups are in the order of the model or of their names"));
  EXPECT_EQ(convert(path("unnamed.ckpt"), path("unnamed"), "what=model").code, 0);
}

TEST_F(ForeignFiles, TwoGroupsAreFoundByTheirNamesOrTheirShapes) {
  for (const std::string file : {"named", "shapes"}) {
    const auto ended = convert(path(file + ".ckpt"), path(file));
    ASSERT_EQ(ended.code, 0) << ended.err;
    const auto snapshot = load_snapshot(path(file)).value();
    for (std::int64_t layer = 0; layer < 12; ++layer)
      for (const auto& [kind, first] : {std::pair{".weight", 0}, std::pair{".bias", 12}})
        EXPECT_TRUE(at::equal(snapshot.tensors.at("optimizer.exp_avg." + std::to_string(layer) + kind),
                              moment_in_python(path(file + ".ckpt"), first + layer)))
            << file << layer << kind;
    for (const auto& [name, decays] : snapshot.run.parameters) EXPECT_EQ(decays, name.ends_with("weight")) << name;
  }
}

TEST_F(ForeignFiles, TheGroupWithWeightDecayGivesTheSettingsWhereverItStands) {
  const auto ended = convert(path("turned.ckpt"), path("turned"));
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto snapshot = load_snapshot(path("turned")).value();
  for (const auto& setting : snapshot.run.settings)
    if (setting.path == "optimizer.weight_decay") EXPECT_EQ(setting.value, "0.1");
}

TEST_F(ForeignFiles, GroupsWithoutAStateNeedNoOrder) {
  const auto ended = convert(path("stateless.ckpt"), path("stateless"));
  EXPECT_EQ(ended.code, 0) << ended.err;
}

TEST_F(ForeignFiles, AFrozenParameterHasNoMoments) {
  const auto ended = convert(path("frozen.ckpt"), path("frozen"));
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto snapshot = load_snapshot(path("frozen")).value();
  EXPECT_FALSE(snapshot.tensors.contains("optimizer.exp_avg.0.weight"));
  EXPECT_TRUE(at::equal(snapshot.tensors.at("optimizer.exp_avg.0.bias"), moment_in_python(path("frozen.ckpt"), 1)));
}

TEST_F(ForeignFiles, OwnSafetensorsComeBackWhole) {
  ASSERT_EQ(convert(path("ckpt.pt"), path("own")).code, 0);
  ASSERT_EQ(convert(path("own"), path("own.safetensors")).code, 0);
  const auto back = convert(path("own.safetensors"), path("back"));
  ASSERT_EQ(back.code, 0) << back.err;
  const auto before = load_snapshot(path("own")).value(), after = load_snapshot(path("back")).value();
  EXPECT_EQ(after.run.step, 3);
  ASSERT_EQ(after.tensors.size(), before.tensors.size());
  for (const auto& [name, tensor] : before.tensors) EXPECT_TRUE(at::equal(after.tensors.at(name), tensor)) << name;
}

TEST(PythonCheckpoint, LeavesOutTheBuffersOfGPT2sAttentionAndNoOtherTensorOfTheirNames) {
  const auto mask = at::ones({1, 1, 4, 4}).tril();
  TrainingCheckpoint checkpoint;
  checkpoint.model = {{"h.0.attn.bias", mask},
                      {"h.0.attn.c_attn.weight", at::ones({4, 12})},
                      {"h.0.attn.c_attn.bias", at::ones({12})},
                      {"h.0.attn.masked_bias", at::scalar_tensor(-1e4)},
                      {"h.1.attn.bias", mask.to(at::kBool)},
                      {"h.1.attn.c_attn.weight", at::ones({4, 12})},
                      {"h.2.attn.bias", at::ones({4, 4})},
                      {"h.2.attn.c_attn.weight", at::ones({4, 12})},
                      {"h.2.attn.masked_bias", at::ones({4, 4})},
                      {"encoder.attn.bias", mask},
                      {"encoder.attn.masked_bias", at::scalar_tensor(-1e4)}};
  for (const auto& [name, tensor] : checkpoint.model) checkpoint.names.push_back(name);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : python_checkpoint::to_snapshot(checkpoint).tensors) names.push_back(name);
  EXPECT_THAT(names, testing::ElementsAre("model.encoder.attn.bias", "model.encoder.attn.masked_bias",
                                          "model.h.0.attn.c_attn.bias", "model.h.0.attn.c_attn.weight",
                                          "model.h.1.attn.c_attn.weight", "model.h.2.attn.bias",
                                          "model.h.2.attn.c_attn.weight", "model.h.2.attn.masked_bias"));
}

}  // namespace
}  // namespace ddpxx::foreign_files_test
