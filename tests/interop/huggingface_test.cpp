// GPT-2 of Hugging Face's transformers: its folders are read and written, with the logits that Python computes.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/interop/model_file.hpp>
#include <ddpxx/nn/from_pretrained.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/snapshot/load_model.hpp>
#include <ddpxx/snapshot/safetensors.hpp>
#include <ddpxx/snapshot/snapshot.hpp>

#include "../error_of.hpp"
#include "../launch/started_program.hpp"
#include "../parity/python.hpp"
#include "../temporary_folder.hpp"

namespace ddpxx::huggingface_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class HuggingFace : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<TemporaryFolder>();
    run_python("../interop/huggingface.py", {"write", folder_->path().string()});
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::filesystem::path at(const std::string& name) { return folder_->path() / name; }
  static std::shared_ptr<GPT> pretrained(const std::filesystem::path& folder) {
    return from_pretrained(read_file(folder / "config.json", Errc::storage), read_model_file(folder));
  }
  /// How far the logits of the model are from those in a file of huggingface.py.
  static double distance(GPT& gpt, const std::filesystem::path& file) {
    const torch::NoGradGuard no_grad;
    const auto expected = read_safetensors(file).tensors;
    Group alone;
    SingleDevice strategy{{}, alone};
    auto runner = strategy.runner();
    gpt.eval();
    return (gpt.logits(runner, expected.at("ids")) - expected.at("logits")).abs().max().item<double>();
  }
  static Ended run(const char* program, std::vector<std::string> words) {
    words.insert(words.begin(), program_folder() + '/' + program);
    return StartedProgram{words}.wait();
  }

  static inline std::unique_ptr<TemporaryFolder> folder_;
  static constexpr double kTolerance = 2e-5;  // the logits reach 10
};

TEST_F(HuggingFace, AFolderBecomesAModelWithPythonsLogits) {
  for (const auto* name : {"tied", "shards", "untied", "torch", "bare"}) {
    const auto gpt = pretrained(at(name));
    EXPECT_LT(distance(*gpt, at(name) / "logits.safetensors"), kTolerance) << name;
    EXPECT_EQ(gpt->named_parameters().contains("lm_head.weight"), std::string_view{name} == "untied");
  }
}

TEST_F(HuggingFace, AFileWithoutBiasesHasZerosInTheirPlaces) {
  auto file = read_model_file(at("tied"));
  const auto whole = pretrained(at("tied"));
  const auto parameters = parameters_by_name(*whole);
  std::erase_if(file, [](const auto& item) { return item.first.ends_with(".bias"); });
  const auto tensors = gpt2_from_huggingface(file, parameters);
  for (const auto& [name, parameter] : parameters) {
    if (name.ends_with(".bias"))
      EXPECT_TRUE(tensors.at(name).equal(at::zeros_like(parameter))) << name;
    else
      EXPECT_TRUE(tensors.at(name).equal(parameter)) << name;
  }
  file.emplace("transformer.ln_f.bias", parameters.at("transformer.ln_f.bias"));
  EXPECT_THROW(gpt2_from_huggingface(file, parameters), Error) << "only some of the biases are there";
}

TEST_F(HuggingFace, AModelWithoutBiasesAndWithExactGELUIsAFolderForPython) {
  torch::manual_seed(3);
  const GPT2Description description{
      .config = {.n_layer = 2, .n_head = 4, .n_embd = 32, .bias = false, .gelu = GELUForm::exact},
      .vocab_size = 300,
      .block_size = 24};
  GPT gpt{description.config, description.vocab_size, description.block_size};
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : gpt.parameters()) parameter.normal_(0.0, 0.3);
  }
  const TemporaryFolder work;
  std::filesystem::create_directory(work / "folder");
  write_safetensors(work / "folder/model.safetensors", gpt2_to_huggingface(parameters_by_name(gpt)),
                    {{"format", "pt"}});
  write_file_atomic(work / "folder/config.json", gpt2_config_json(description));
  run_python("../interop/huggingface.py",
             {"logits", (work / "folder").string(), (work / "logits.safetensors").string()});
  EXPECT_LT(distance(gpt, work / "logits.safetensors"), kTolerance);
  const auto back = pretrained(work / "folder");
  EXPECT_LT(distance(*back, work / "logits.safetensors"), kTolerance);
  EXPECT_EQ(back->named_parameters().size(), gpt.named_parameters().size()) << "expected no biases";

  const auto bias_in = [&](const std::filesystem::path& place) {
    const auto snapshot = load_snapshot(place).value();
    for (const auto& setting : snapshot.run.settings)
      if (setting.path == "model.bias") return setting.value;
    return std::string{"none"};
  };
  const auto convert = [&](const std::filesystem::path& from, const std::filesystem::path& to, const char* layout) {
    const auto ended = run("ddpxx", {"snapshot", "convert", from.string(), "to=" + to.string(), layout});
    EXPECT_EQ(ended.code, 0) << ended.err;
  };
  convert(work / "folder", work / "run", "what=all");
  EXPECT_EQ(bias_in(work / "run"), "false");
  convert(work / "run", work / "again", "layout=huggingface");
  EXPECT_EQ(read_gpt2_config(read_file(work / "again/config.json", Errc::storage)).config.bias, false);
  auto trained = read_safetensors(work / "again/model.safetensors").tensors;
  trained.at("transformer.ln_f.bias") = at::ones({32});
  write_safetensors(work / "again/model.safetensors", trained, {{"format", "pt"}});
  convert(work / "again", work / "trained", "what=all");
  EXPECT_EQ(bias_in(work / "trained"), "true") << "Python has trained the biases";
}

/// A file of tokens below 299.
std::string some_tokens() {
  std::string tokens;
  for (int i = 0; i < 2000; ++i) tokens += {static_cast<char>(i * i % 299), static_cast<char>(i * i % 299 / 256)};
  return tokens;
}

TEST_F(HuggingFace, ARunThatBeganWithAFolderIsAFolderForPython) {
  for (const auto& [name, tied] : {std::pair{"shards", "true"}, std::pair{"untied", "false"}}) {
    const TemporaryFolder work;
    const auto place = (work / "run").string(), back = (work / "back").string();
    const auto trained = run("mingpt", {"init_from=" + at(name).string(), "model.n_layer=2", "model.n_head=4",
                                        "model.n_embd=32", std::string{"model.tied_head="} + tied, "data.format=tokens",
                                        "data.path=" + work.file("train.bin", some_tokens()), "data.vocab_size=300",
                                        "data.block_size=24", "training.max_steps=2", "training.save_dir=" + place});
    ASSERT_EQ(trained.code, 0) << trained.err;
    const auto converted = run("ddpxx", {"snapshot", "convert", place, "to=" + back, "layout=huggingface"});
    ASSERT_EQ(converted.code, 0) << converted.err;
    run_python("../interop/huggingface.py", {"logits", back, (work / "logits.safetensors").string()});

    const auto gpt = pretrained(back);
    EXPECT_LT(distance(*gpt, work / "logits.safetensors"), kTolerance) << name;
    EXPECT_GT(distance(*gpt, at(name) / "logits.safetensors"), 1e-4) << name << ": the run has changed nothing";
    const auto snapshot = load_snapshot(place)->tensors;
    for (const auto& [parameter, value] : parameters_by_name(*gpt))
      EXPECT_TRUE(value.equal(snapshot.at("model." + parameter))) << parameter;
  }
}

TEST_F(HuggingFace, AFolderBecomesASnapshotThatGeneratesAndTrains) {
  const TemporaryFolder work;
  const auto place = (work / "run").string(), back = (work / "new/back").string();
  const auto converted = run("ddpxx", {"snapshot", "convert", at("tied").string(), "to=" + place});
  ASSERT_EQ(converted.code, 0) << converted.err;
  const auto without_data = run("mingpt", {"--from", place, "training.max_steps=1"});
  EXPECT_EQ(without_data.code, 2);
  EXPECT_THAT(without_data.err, HasSubstr("no tokens to train on: set data.path=FILE"));
  const auto later =
      run("ddpxx", {"snapshot", "convert", at("tied").string(), "to=" + (work / "later").string(), "step=300"});
  EXPECT_THAT(later.out, HasSubstr("step 300: "));
  const auto generated = run(
      "mingpt", {"generate", "--from", place, "generate.prompt=1 2 3", "generate.tokens=4", "generate.sample=false"});
  ASSERT_EQ(generated.code, 0) << generated.err;
  EXPECT_THAT(generated.out, testing::MatchesRegex("1 2 3( [0-9]+){4}\n"));
  ASSERT_EQ(run("ddpxx", {"snapshot", "convert", place, "to=" + back, "layout=huggingface"}).code, 0);
  run_python("../interop/huggingface.py", {"logits", back, (work / "logits.safetensors").string()});
  const auto ours = read_safetensors(work / "logits.safetensors").tensors,
             theirs = read_safetensors(at("tied") / "logits.safetensors").tensors;
  EXPECT_TRUE(ours.at("logits").equal(theirs.at("logits")));
  for (const std::filesystem::path name : {"config.json", "model.safetensors"}) {
    const auto taken = work / ("taken_by_" + name.stem().string());
    std::filesystem::create_directory(taken);
    std::ofstream{taken / name} << "another model's";
    const auto again = run("ddpxx", {"snapshot", "convert", place, "to=" + taken.string(), "layout=huggingface"});
    EXPECT_EQ(again.code, 2) << again.err;
    EXPECT_THAT(again.err, HasSubstr("has a " + name.string() + " already"));
    EXPECT_EQ(read_file(taken / name, Errc::storage), "another model's");
  }

  const auto trained = run("mingpt", {"--from", place, "data.path=" + work.file("train.bin", some_tokens()),
                                      "training.max_steps=2", "training.eval_every=2"});
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.out, AllOf(HasSubstr("step 2/2"), HasSubstr("val_loss")));
  EXPECT_EQ(load_snapshot(place)->run.step, 2);
}

TEST_F(HuggingFace, RefusesModelsThatGptDoesNotCompute) {
  const auto refused = [](const char* key, const nlohmann::json& value) {
    auto json = nlohmann::json::parse(read_file(at("tied") / "config.json", Errc::storage));
    json[key] = value;
    return error_of([&] { read_gpt2_config(json.dump()); });
  };
  EXPECT_EQ(refused("use_cache", false), "no error");
  EXPECT_EQ(refused("activation_function", "gelu"), "no error");
  EXPECT_THAT(refused("model_type", "llama"), HasSubstr("model_type=\"llama\": GPT computes with \"gpt2\""));
  EXPECT_THAT(refused("activation_function", "relu"), HasSubstr("activation_function=\"relu\""));
  EXPECT_THAT(refused("n_inner", 64), HasSubstr("n_inner=64: GPT computes with 128"));
  EXPECT_THAT(refused("layer_norm_epsilon", 1e-6), HasSubstr("layer_norm_epsilon"));
  EXPECT_THAT(refused("scale_attn_by_inverse_layer_idx", true), HasSubstr("scale_attn_by_inverse_layer_idx=true"));
  EXPECT_THAT(refused("attn_pdrop", 0.0), HasSubstr("attn_pdrop=0.0: GPT has one dropout"));
  for (const nlohmann::json& dropout : {nlohmann::json(1.0), nlohmann::json(-0.1), nlohmann::json("no")})
    EXPECT_EQ(refused("resid_pdrop", dropout),
              "config.json has resid_pdrop=" + dropout.dump() + ": a fraction below 1 is needed");
  EXPECT_THAT(refused("tie_word_embeddings", "no"), HasSubstr("true or false"));
  EXPECT_THAT(refused("n_head", 5), HasSubstr("not divisible by n_head"));
  EXPECT_THAT(refused("n_layer", -1), HasSubstr("n_layer=-1: a count is needed"));
  EXPECT_THAT(refused("vocab_size", 1e18), HasSubstr("a count is needed"));
  EXPECT_THAT(error_of([] { read_gpt2_config("[]"); }), HasSubstr("not a JSON object"));
}

TEST_F(HuggingFace, KeepsTheNamesOfAFileOfAnIndexThatAllBeginWithModel) {
  const TemporaryFolder work;
  write_safetensors(work / "model-1.safetensors", {{"model.norm.weight", at::ones({2})}});
  write_safetensors(work / "model-2.safetensors", {{"lm_head.weight", at::zeros({2})}});
  std::ofstream{work / "model.safetensors.index.json"}
      << R"({"weight_map": {"model.norm.weight": "model-1.safetensors", "lm_head.weight": "model-2.safetensors"}})";
  const auto tensors = read_model_file(work.path());
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_TRUE(at::equal(tensors.at("model.norm.weight"), at::ones({2})));
}

TEST(SnapshotFile, IsKnownByItsMetadataAndAnOlderOneByItsNames) {
  const NamedTensors model{{"model.norm.weight", at::ones({2})}};
  auto whole = model;
  whole.emplace("optimizer.step", at::ones({}));
  EXPECT_TRUE(is_of_snapshot({model, snapshot_metadata()}));
  EXPECT_FALSE(is_of_snapshot({model, {{"format", "pt"}}}));
  EXPECT_TRUE(is_of_snapshot({whole, {{"format", "pt"}}}));
  EXPECT_FALSE(is_of_snapshot({{}, {{"format", "pt"}}}));
  whole.emplace("norm.weight", at::ones({2}));
  EXPECT_FALSE(is_of_snapshot({whole, {}}));

  const TemporaryFolder work;
  write_safetensors(work / "model.safetensors", model);
  EXPECT_TRUE(read_model_file(work.path()).contains("model.norm.weight"));
  write_safetensors(work / "model.safetensors", model, snapshot_metadata());
  EXPECT_TRUE(read_model_file(work.path()).contains("norm.weight"));
}

TEST(SnapshotFile, OfAModelAloneComesBackUnderItsNames) {
  const TemporaryFolder work;
  const auto file = (work / "w.safetensors").string();
  save_snapshot(work / "run", {.run = {.step = 1}, .tensors = {{"model.norm.weight", at::ones({2})}}});
  for (const auto& [from, to] : {std::pair{(work / "run").string(), file}, std::pair{file, (work / "back").string()}}) {
    const auto ended =
        StartedProgram{{program_folder() + "/ddpxx", "snapshot", "convert", from, "to=" + to, "what=model"}}.wait();
    ASSERT_EQ(ended.code, 0) << ended.err;
  }
  const auto back = load_snapshot(work / "back").value().tensors;
  ASSERT_EQ(back.size(), 1U);
  EXPECT_TRUE(back.contains("model.norm.weight")) << back.begin()->first;
}

TEST(ModelFile, OfAPlaceOfSnapshotsIsRefusedWithWhatItIs) {
  const TemporaryFolder work;
  save_snapshot(work / "run", {.run = {.step = 3}, .tensors = {{"model.norm.weight", at::ones({2})}}});
  for (const char* folder : {"run", "run/", "run/step-00000003", "run/step-00000003/"})
    EXPECT_THAT(error_of([&] { read_model_file(work / folder); }),
                AllOf(HasSubstr("has snapshots of ddpxx"),
                      HasSubstr("convert " + (work / "run").string() + " to=weights.safetensors`")))
        << folder;
}

TEST_F(HuggingFace, RefusesFoldersAndIndexesThatLackSomething) {
  const TemporaryFolder work;
  EXPECT_THAT(error_of([&] { read_model_file(work.path()); }), HasSubstr("has no weights"));
  std::filesystem::copy(at("shards"), work / "shards");
  const auto index = work / "shards/model.safetensors.index.json";
  // Folders whose weights have the tensor: the index may not lead there.
  std::filesystem::create_directory(work / "shards/folder");
  for (const auto& folder : {work / "shards/folder", work.path()})
    std::filesystem::copy_file(at("tied") / "model.safetensors", folder / "model.safetensors");
  auto json = nlohmann::json::parse(read_file(index, Errc::storage));
  const auto with_file = [&](const nlohmann::json& file) {
    json["weight_map"]["transformer.wte.weight"] = file;
    std::ofstream{index} << json.dump();
    return error_of([&] { read_model_file(work / "shards"); });
  };
  EXPECT_THAT(with_file("model-00003-of-00003.safetensors"),
              AllOf(HasSubstr(index.string()), HasSubstr("transformer.wte.weight is not in model-00003")));
  for (const nlohmann::json& file :
       {nlohmann::json{"../tied/model.safetensors"}, nlohmann::json{3}, nlohmann::json{"model.safetensors.index.json"},
        nlohmann::json{"."}, nlohmann::json{".."}, nlohmann::json{"folder"}})
    EXPECT_THAT(with_file(file), HasSubstr("not the name of a file beside it"));
  EXPECT_THAT(with_file("absent.safetensors"), HasSubstr("absent.safetensors"));
  std::ofstream{index} << "{}";
  EXPECT_THAT(error_of([&] { read_model_file(work / "shards"); }), HasSubstr("it has no weight_map"));

  const auto other = run("ddpxx", {"snapshot", "convert", at("tied").string(), "to=x.pt", "layout=huggingface"});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.err, HasSubstr("layout=huggingface writes a folder"));
  save_snapshot(work / "run", {.run = {.step = 1}, .tensors = {{"model.weight", at::ones({2})}}});
  const auto no_gpt = run(
      "ddpxx", {"snapshot", "convert", (work / "run").string(), "to=" + (work / "hf").string(), "layout=huggingface"});
  EXPECT_EQ(no_gpt.code, 4);
  EXPECT_THAT(no_gpt.err, HasSubstr("does not record its number of heads"));
}

}  // namespace
}  // namespace ddpxx::huggingface_test
