// Command lines from the guides, and of minGPT, nanoGPT and Hydra, are given to this build's mingpt.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/config/fill/config_builder.hpp>
#include <ddpxx/config/line/arguments.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/config/print.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/optim/schedule.hpp>

#include "../../samples/mingpt/prompt.hpp"
#include "../../samples/mingpt/run_config.hpp"
#include "../temporary_folder.hpp"
#include "filled.hpp"

namespace ddpxx::command_lines_test {
namespace {

using namespace detail;

struct CommandLine {
  std::string from;
  std::vector<const char*> arguments;
  std::map<std::string, std::string> fields;  ///< Other fields keep their defaults.
  std::string yaml{};                         ///< A configuration file that the command line names.
};

const std::string kText = "data: {path: input.txt}\n";

class ACommandLine : public testing::TestWithParam<CommandLine> {};

TEST_P(ACommandLine, LandsInTheRightFields) {
  const auto& [from, arguments, fields, yaml] = GetParam();
  const auto filled = fill<RunConfig>(yaml.empty() ? kText : yaml, arguments);
  EXPECT_EQ(filled.problems, "") << from;
  const auto before = settings_of(fill<RunConfig>(kText).config);
  const auto& table = table_of<RunConfig>();
  const auto usual = [&](const std::string& path) {
    const auto* row = table.find_active(path, &filled.config);
    const auto other = std::ranges::find(before, path, &Setting::path);
    // The usual config may have chosen another alternative, with other settings.
    return row->place.variant == FieldPlace::kRoot ? other->value : table.print_default(*row);
  };
  auto left = fields;
  for (const auto& [path, value, resume, origin] : settings_of(filled.config)) {
    const auto wanted = fields.find(path);
    EXPECT_EQ(value, wanted == fields.end() ? usual(path) : wanted->second) << path;
    left.erase(path);
  }
  EXPECT_TRUE(left.empty()) << left.begin()->first << " is not a field";
}

using Fields = std::map<std::string, std::string>;

INSTANTIATE_TEST_SUITE_P(
    Guides, ACommandLine,
    testing::Values(
        CommandLine{
            "A: the central configuration",
            {"data.path=input.txt"},
            Fields{{"data.batch_size", "64"},
                   {"model.n_layer", "12"},
                   {"model.n_head", "12"},
                   {"model.n_embd", "768"},
                   {"optimizer.learning_rate", "0.0003"},
                   {"training.save_dir", "\"checkpoints/\""}},
            "data.dataset: \"shakespeare\"\ndata.batch_size: 64\nmodel: {n_layer: 12, n_head: 12, n_embd: 768}\n"
            "training: {max_epochs: 10, learning_rate: 0.0003, save_dir: checkpoints/}\n"},
        CommandLine{"B: minGPT-ddp's configuration",
                    {},
                    Fields{{"data.path", "\"data/input.txt\""},
                           {"data.block_size", "128"},
                           {"data.batch_size", "216"},
                           {"data.num_workers", "4"},
                           {"model.n_layer", "8"},
                           {"model.n_head", "8"},
                           {"model.n_embd", "512"},
                           {"optimizer.weight_decay", "0.1"},
                           {"training.save_dir", "\"gpt_snapshot.pt\""},
                           {"training.save_every_epochs", "3"},
                           {"precision", "\"fp16\""},
                           {"run_folder", "\"./\""}},
                    "gpt_config: {n_layer: 8, n_head: 8, n_embd: 512}\n"
                    "data_config: {path: data/input.txt, block_size: 128, train_split: 0.9, truncate: 1.0}\n"
                    "optimizer_config: {weight_decay: 0.1, learning_rate: 0.0003}\n"
                    "trainer_config:\n  max_epochs: 10\n  batch_size: 216\n  data_loader_workers: 4\n"
                    "  grad_norm_clip: 1.0\n  snapshot_path: gpt_snapshot.pt\n  save_every: 3\n  use_amp: true\n"
                    "hydra: {run: {dir: ./}}\n"},
        CommandLine{
            "D: named",
            {"--total_epochs", "50", "--save_every", "10", "--batch_size", "32"},
            Fields{{"training.max_epochs", "50"}, {"training.save_every_epochs", "10"}, {"data.batch_size", "32"}}},
        CommandLine{
            "D: positional",
            {"50", "10", "--batch_size", "32"},
            Fields{{"training.max_epochs", "50"}, {"training.save_every_epochs", "10"}, {"data.batch_size", "32"}}},
        CommandLine{"D: dashes",
                    {"--total-epochs=50", "--batch-size=32"},
                    Fields{{"training.max_epochs", "50"}, {"data.batch_size", "32"}}}));

INSTANTIATE_TEST_SUITE_P(MinGPT, ACommandLine,
                         testing::Values(CommandLine{"minGPT",
                                                     {"--model.n_layer=10", "--trainer.batch_size=32"},
                                                     Fields{{"model.n_layer", "10"}, {"data.batch_size", "32"}}},
                                         CommandLine{"minGPT, both betas at once",
                                                     {"--trainer.betas=(0.8, 0.99)", "--trainer.grad_norm_clip=2"},
                                                     Fields{{"optimizer.beta1", "0.8"},
                                                            {"optimizer.beta2", "0.99"},
                                                            {"training.grad_norm_clip", "2.0"}}},
                                         CommandLine{
                                             "minGPT, chargpt",
                                             {"--model.model_type=gpt-mini", "--trainer.learning_rate=5e-4",
                                              "--trainer.max_iters=1000", "--trainer.num_workers=2",
                                              "--data.block_size=128", "--system.seed=3407", "--system.work_dir=out"},
                                             Fields{{"model.model_type", "\"gpt-mini\""},
                                                    {"optimizer.learning_rate", "0.0005"},
                                                    {"training.max_steps", "1000"},
                                                    {"data.num_workers", "2"},
                                                    {"data.block_size", "128"},
                                                    {"training.seed", "3407"},
                                                    {"run_folder", "\"out\""}}}));

INSTANTIATE_TEST_SUITE_P(
    NanoGPT, ACommandLine,
    testing::Values(CommandLine{"nanoGPT on a CPU",
                                {"--device=cpu", "--compile=False", "--eval_iters=20", "--log_interval=1",
                                 "--block_size=64", "--batch_size=12", "--n_layer=4", "--n_head=4", "--n_embd=128",
                                 "--max_iters=2000", "--lr_decay_iters=2000", "--dropout=0.0"},
                                Fields{{"training.device", "\"cpu\""},
                                       {"data.block_size", "64"},
                                       {"data.batch_size", "12"},
                                       {"model.n_layer", "4"},
                                       {"model.n_head", "4"},
                                       {"model.n_embd", "128"},
                                       {"model.dropout", "0.0"},
                                       {"training.max_steps", "2000"},
                                       {"optimizer.decay_steps", "2000"}}},
                    CommandLine{
                        "nanoGPT's optimizer",
                        {"--learning_rate=6e-4", "--weight_decay=0.2", "--beta1=0.8", "--beta2=0.99", "--grad_clip=0.5",
                         "--warmup_iters=100", "--min_lr=6e-5", "--gradient_accumulation_steps=8", "--dtype=float32",
                         "--eval_interval=250", "--out_dir=out", "--dataset=openwebtext.txt"},
                        Fields{{"optimizer.learning_rate", "0.0006"},
                               {"optimizer.weight_decay", "0.2"},
                               {"optimizer.beta1", "0.8"},
                               {"optimizer.beta2", "0.99"},
                               {"training.grad_norm_clip", "0.5"},
                               {"optimizer.warmup_steps", "100"},
                               {"optimizer.final_learning_rate", "0.00006"},
                               {"training.accumulation_steps", "8"},
                               {"training.eval_every", "250"},
                               {"training.save_dir", "\"out\""},
                               {"data.path", "\"openwebtext.txt\""}}},
                    CommandLine{"nanoGPT's number format", {"--dtype=bfloat16"}, Fields{{"precision", "\"bf16\""}}},
                    CommandLine{"nanoGPT's layers without biases", {"--bias=False"}, Fields{{"model.bias", "false"}}},
                    CommandLine{"the same as a flag", {"--no-bias"}, Fields{{"model.bias", "false"}}},
                    CommandLine{"nanoGPT, where it does what is done anyway",
                                {"--eval_only=False", "--bias=True", "--init_from=resume", "--always_save_checkpoint",
                                 "--wandb_log=False", "--num_samples=10", "--backend=nccl"},
                                Fields{{"init_from", "\"resume\""}}},
                    CommandLine{"nanoGPT's sample.py",
                                {"--start=\"What is the answer\"", "--max_new_tokens=100", "--temperature=0.8",
                                 "--top_k=200", "--top_p=0.9", "--seed=1338"},
                                Fields{{"generate.prompt", "\"What is the answer\""},
                                       {"generate.tokens", "100"},
                                       {"generate.temperature", "0.8"},
                                       {"generate.top_k", "200"},
                                       {"generate.top_p", "0.9"},
                                       {"training.seed", "1338"}}}));

INSTANTIATE_TEST_SUITE_P(
    Hydra, ACommandLine,
    testing::Values(
        CommandLine{"key=value",
                    {"trainer_config.max_epochs=5", "data_config.path='a b.txt'"},
                    Fields{{"training.max_epochs", "5"}, {"data.path", "\"a b.txt\""}}},
        CommandLine{
            "Hydra's run folder", {"hydra.run.dir=outputs/%Y-%m-%d"}, Fields{{"run_folder", "\"outputs/%Y-%m-%d\""}}},
        CommandLine{"a group", {"strategy=fsdp"}, Fields{{"strategy.name", "\"fsdp\""}}},
        CommandLine{"a reference",
                    {"optimizer.decay_steps=${training.max_steps}", "training.max_steps=1e3"},
                    Fields{{"optimizer.decay_steps", "1000"}, {"training.max_steps", "1000"}}},
        CommandLine{"options among them", {"--cfg", "job", "seed=3", "--resolve"}, Fields{{"training.seed", "3"}}}));

TEST(ACommandLineOfHydra, ThatAddsOrRemovesASettingIsRefused) {
  EXPECT_EQ(fill<RunConfig>("data: {path: x}\n", {"+model.depth=3", "~model.n_layer"}).problems,
            "argument 1: \"+model.depth=3\": settings cannot be added; write key=value without the +\n"
            "argument 2: \"~model.n_layer\": settings cannot be removed; leave it out, or write key=null");
}

TEST(ANameOfADataset, GivesWayToThePathOfAText) {
  for (const auto& arguments : {std::vector{"dataset=a_name_only", "data.path=text.txt"},
                                std::vector{"data.path=text.txt", "dataset=a_name_only"}}) {
    const auto filled = fill<RunConfig>("", arguments);
    EXPECT_EQ(filled.problems, "");
    EXPECT_EQ(filled.config.data.text.path, "text.txt");
  }
  EXPECT_NE(fill<RunConfig>("", {"dataset=./a.txt", "data.path=b.txt"}).problems.find("keep one of the two"),
            std::string::npos);
}

TEST(TheMicroBatchesOfNanoGPT, AreDividedHoweverTheirNumberIsWritten) {
  ASSERT_EQ(::setenv("WORLD_SIZE", "4", 1), 0);
  for (const char* number : {"40", "4e1", "+40", "0x28", "4_0", "40.0", ".04k"}) {
    const auto argument = "--gradient_accumulation_steps=" + std::string{number};
    const auto filled = fill<RunConfig>(kText, {argument.c_str()});
    EXPECT_EQ(filled.problems, "") << number;
    EXPECT_EQ(filled.config.training.accumulation_steps, 10) << number;
  }
  EXPECT_NE(fill<RunConfig>(kText, {"--gradient_accumulation_steps=4.5e1"}).problems.find("do not divide"),
            std::string::npos);
  EXPECT_NE(fill<RunConfig>(kText, {"--gradient_accumulation_steps=x"}).problems.find("not a whole number"),
            std::string::npos);
  ASSERT_EQ(::unsetenv("WORLD_SIZE"), 0);
}

struct Refused {
  std::vector<const char*> arguments;
  std::string report;
};

class ARefusedCommandLine : public testing::TestWithParam<Refused> {};

TEST_P(ARefusedCommandLine, SaysWhatToDoInstead) {
  EXPECT_EQ(fill<RunConfig>(kText, GetParam().arguments).problems, GetParam().report);
}

INSTANTIATE_TEST_SUITE_P(
    NanoGPT, ARefusedCommandLine,
    testing::Values(
        Refused{{"--eval_only"},
                "argument 1: \"--eval_only\": \"true\" is not supported (allowed: false): mingpt evaluate "
                "--from PLACE evaluates a snapshot"},
        Refused{{"--init_from=scratch"},
                "argument 1: \"--init_from=scratch\": a run begins anew where training.save_dir has no snapshot, and "
                "resumes where it has one: leave init_from out, and choose another training.save_dir to begin anew"},
        Refused{
            {"eval_only.foo=false"},
            "argument 1: \"eval_only.foo=false\": a group is not supported (allowed: false): mingpt evaluate --from "
            "PLACE evaluates a snapshot"},
        Refused{{"--start=FILE:/nowhere/prompt.txt", "--max_new_tokens=5"},
                "argument 1: \"--start=FILE:/nowhere/prompt.txt\": cannot open /nowhere/prompt.txt: No such file or "
                "directory (errno 2)"},
        Refused{{"--max_iters=1.5", "--nlayer=3"},
                "argument 1: \"--max_iters=1.5\": \"1.5\" is not a whole number (allowed: at least 0)\n"
                "argument 2: \"--nlayer=3\": unknown key; did you mean model.n_layer?"}));

INSTANTIATE_TEST_SUITE_P(
    MinGPT, ARefusedCommandLine,
    testing::Values(
        Refused{{"--trainer.betas=(0.9,)"}, "argument 1: \"--trainer.betas=(0.9,)\": needs 2 items, and has 1"},
        Refused{{"--trainer.betas=0.9"}, "argument 1: \"--trainer.betas=0.9\": \"0.9\" is not a list; write [a, b, c]"},
        Refused{{"--trainer.betas=(0.9, 2)"},
                "argument 1: \"--trainer.betas=(0.9, 2)\": \"2\" is out of range (allowed: at least 0 and below 1)"}));

INSTANTIATE_TEST_SUITE_P(
    Guides, ARefusedCommandLine,
    testing::Values(Refused{{"50x", "-1"},
                            "argument 1: \"50x\": training.max_epochs: \"50x\" is not a whole number (allowed: 0 to "
                            "1000000000)\n"
                            "argument 2: \"-1\": is not an option; settings are written key=value, --help lists them"},
                    Refused{
                        {"5", "10", "15"},
                        "argument 3: \"15\": is not a setting; settings are written key=value, --help lists them"}));

INSTANTIATE_TEST_SUITE_P(
    Suggestions, ARefusedCommandLine,
    testing::Values(
        Refused{{"max_step=5"}, "argument 1: \"max_step=5\": unknown key; did you mean training.max_steps?"},
        Refused{{"max_steps=5"}, "argument 1: \"max_steps=5\": unknown key; did you mean training.max_steps?"},
        Refused{{"epochs=3"}, "argument 1: \"epochs=3\": unknown key; did you mean training.max_epochs?"},
        Refused{{"lr=1"},
                "argument 1: \"lr=1\": unknown key; did you mean optimizer.learning_rate or "
                "parameter_groups.learning_rate?"},
        Refused{{"optimizer.lr=1"},
                "argument 1: \"optimizer.lr=1\": unknown key; did you mean optimizer.learning_rate?"},
        Refused{{"ema=.99"}, "argument 1: \"ema=.99\": unknown key; did you mean training.ema_decay?"},
        Refused{{"gradient_clip_val=1"},
                "argument 1: \"gradient_clip_val=1\": unknown key; did you mean training.grad_norm_clip?"},
        Refused{{"accumulate_grad_batches=2"},
                "argument 1: \"accumulate_grad_batches=2\": unknown key; did you mean training.accumulation_steps?"},
        Refused{{"embd_pdrop=0"}, "argument 1: \"embd_pdrop=0\": unknown key; did you mean model.dropout?"},
        Refused{{"--model.attn_pdrop=0"},
                "argument 1: \"--model.attn_pdrop=0\": unknown key; did you mean model.dropout?"},
        Refused{{"resid_pdrop=0"}, "argument 1: \"resid_pdrop=0\": unknown key; did you mean model.dropout?"},
        Refused{{"n_positions=8"}, "argument 1: \"n_positions=8\": unknown key; did you mean data.block_size?"},
        Refused{{"model.n_ctx=8"}, "argument 1: \"model.n_ctx=8\": unknown key; did you mean data.block_size?"},
        Refused{{"batch_size", "32"}, "argument 1: \"batch_size 32\": write batch_size=32"},
        Refused{{"hub_token", "abc"}, "argument 1: \"hub_token ***\": write hub_token=***"},
        Refused{{"--standalone", "seed=1"},
                "argument 1: \"--standalone\": unknown key; the flags of ddpxx-run stand before the program: ddpxx-run "
                "FLAGS PROGRAM ARGUMENTS"},
        Refused{{"--nproc-per-node", "2"},
                "argument 1: \"--nproc-per-node 2\": unknown key; the flags of ddpxx-run stand before the program: "
                "ddpxx-run FLAGS PROGRAM ARGUMENTS"},
        Refused{{"checkpoint_dir=x"}, "argument 1: \"checkpoint_dir=x\": unknown key; did you mean training.save_dir?"},
        Refused{{"model_n_layer=3"},
                "argument 1: \"model_n_layer=3\": unknown key; did you mean model.n_layer? (in an environment variable "
                "__ stands for the dot)"},
        Refused{{"training.device=gpu"},
                "argument 1: \"training.device=gpu\": \"gpu\" is not known (allowed: auto, cpu or cuda); did you mean "
                "cuda?"},
        Refused{
            {"optimizer.schedule=cos"},
            "argument 1: \"optimizer.schedule=cos\": \"cos\" is not known (allowed: none, constant, linear, cosine, "
            "wsd, one_cycle or step); did you mean cosine?"},
        Refused{{"precision=bf16-mixed"},
                "argument 1: \"precision=bf16-mixed\": \"bf16-mixed\" is not known (allowed: fp32, tf32, bf16, fp16, "
                "bf16_params, float32, bfloat16 or float16); did you mean bf16?"}));

TEST(ASettingThatDoesNothing, GetsAWarning) {
  const auto notices = [](std::vector<const char*> arguments) { return fill<RunConfig>(kText, arguments).notices; };
  EXPECT_EQ(notices({"optimizer.schedule=cosine", "optimizer.decay_steps=10"}), "");
  EXPECT_EQ(notices({"optimizer.decay_steps=10"}),
            "argument 1: \"optimizer.decay_steps=10\": optimizer.decay_steps: warning: does nothing with "
            "schedule=constant: choose linear, cosine, wsd or one_cycle\n");
  const auto has = [&](std::vector<const char*> arguments, const char* text) {
    EXPECT_NE(notices(arguments).find(text), std::string::npos) << arguments.front() << ": " << notices(arguments);
  };
  has({"optimizer.final_learning_rate=1e-5"}, "final_learning_rate: warning: does nothing with schedule=constant");
  has({"training.eval_samples=10"}, "warning: without eval_every or eval_every_epochs training makes no evaluation");
  has({"generate.prompt=x"}, "warning: does nothing without tokens");
  has({"training.max_steps=5", "optimizer.warmup_steps=6"}, "warning: is above training.max_steps");
  has({"snapshot.keep_best=3", "training.save_dir=s"}, "warning: does nothing without training.eval_every");
  has({"snapshot.keep_every=3"}, "warning: keep_best and keep_every do nothing without training.save_dir");
  has({"scaler.growth_interval=3"}, "warning: does nothing unless precision=fp16");
  has({"training.save_every_epochs=3"}, "warning: nothing is saved: set save_dir");
  EXPECT_EQ(notices({"precision=fp16", "scaler.growth_interval=3"}), "");
}

TEST(ASettingThatDoesNothing, IsRefusedWhereWorkWouldBeLost) {
  for (const char* every : {"training.save_every=10", "training.save_every_time=5m"})
    EXPECT_NE(fill<RunConfig>(kText, {every}).problems.find("nothing would be saved: set save_dir"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Hydra, ARefusedCommandLine,
                         testing::Values(Refused{
                             {"hydra.run.dir=outputs/${now:%Y-%m-%d}"},
                             "argument 1: \"hydra.run.dir=outputs/${now:%Y-%m-%d}\": ${now:%Y-%m-%d} is not known; the "
                             "name of a run folder takes %Y-%m-%d itself"}));

/// Each test runs in a new current folder.
class AFileOfNanoGPT : public testing::Test {
 protected:
  AFileOfNanoGPT() { std::filesystem::current_path(folder_.path()); }
  ~AFileOfNanoGPT() override { std::filesystem::current_path(before_); }

  static RunConfig parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "mingpt");
    testing::internal::CaptureStderr();  // removes the notices from the test's output
    try {
      auto config =
          parse_config<RunConfig>(static_cast<int>(arguments.size()), arguments.data(), {.config_path = "/nowhere"});
      testing::internal::GetCapturedStderr();
      return config;
    } catch (const Error&) {
      testing::internal::GetCapturedStderr();
      throw;
    }
  }

  static std::string refusal(const std::vector<const char*>& arguments) {
    try {
      parse(arguments);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  TemporaryFolder folder_;

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
};

TEST_F(AFileOfNanoGPT, IsReadBeforeTheArguments) {
  folder_.file("config/train_small.py",
               "# a small model\nout_dir = 'out-small'\neval_interval = 250 # often\nalways_save_checkpoint = False\n"
               "wandb_log = False\ndataset = 'text.txt'\ngradient_accumulation_steps = 5 * 8\n\nbatch_size = 64\n"
               "learning_rate = 1e-3\nbeta2 = 0.99\ndropout = .2;\nbias = True\n");
  const auto config = parse({"config/train_small.py", "--batch_size=32", "--device=cpu", "--compile=False"});
  EXPECT_EQ(config.training.save_dir, "out-small");
  EXPECT_EQ(config.training.eval_every, 250);
  EXPECT_EQ(config.training.accumulation_steps, 40);
  EXPECT_EQ(config.data.text.path, "text.txt");
  EXPECT_EQ(config.data.batch_size, 32);
  EXPECT_EQ(config.optimizer.learning_rate, 1e-3);
  EXPECT_EQ(config.optimizer.beta2, 0.99);
}

/// Sets WORLD_SIZE, as a launcher does, as long as the object lives.
struct OfRanks {
  explicit OfRanks(const char* count) { ::setenv("WORLD_SIZE", count, 1); }
  ~OfRanks() { ::unsetenv("WORLD_SIZE"); }
  OfRanks(const OfRanks&) = delete;
  OfRanks& operator=(const OfRanks&) = delete;
};

TEST_F(AFileOfNanoGPT, MeansWhatItMeansThere) {
  folder_.file("train_gpt2.py", "batch_size = 12\ngradient_accumulation_steps = 5 * 8\nmax_iters = 1000\n");
  folder_.file("run.yaml", "include: train_gpt2.py\ndata: {path: x}\n");
  const auto including = parse({"run.yaml"});
  EXPECT_EQ(including.model.sizes().n_layer, 12) << "an included file in Python has nanoGPT's defaults too";
  const OfRanks ranks{"8"};
  const auto config = parse({"train_gpt2.py", "data.path=x"});
  EXPECT_EQ(config.model.sizes().n_layer, 12) << "expected nanoGPT's default, not this program's";
  EXPECT_EQ(config.model.sizes().n_embd, 768);
  EXPECT_EQ(config.model.dropout, 0.0);
  EXPECT_TRUE(config.model.tied_head) << "nanoGPT's token embedding is the weight of its head, too";
  EXPECT_FALSE(config.model.bias);
  EXPECT_EQ(config.model.gelu_form(), GELUForm::exact);
  folder_.file("biased.py", "bias = True\n");
  EXPECT_TRUE(parse({"biased.py", "data.path=x"}).model.bias);
  EXPECT_EQ(config.data.text.block_size, 1024);
  EXPECT_EQ(config.training.accumulation_steps, 5) << "40 micro-batches, divided by 8 ranks";
  EXPECT_EQ(config.training.max_steps, 1000);
  EXPECT_EQ(config.training.max_epochs, 0);
  EXPECT_EQ(config.optimizer.schedule, Schedule::cosine);
  EXPECT_EQ(config.optimizer.decay_steps, 600000);
  EXPECT_EQ(config.optimizer.final_learning_rate, 6e-5);
  EXPECT_EQ(config.training.save_dir, "out");
  EXPECT_EQ(config.training.save_every, 2000) << "nanoGPT saves at each evaluation";
  const auto flat = parse({"train_gpt2.py", "data.path=x", "--decay_lr=False"}).optimizer;
  EXPECT_EQ(flat.learning_rate_at(0), 6e-4) << "decay_lr=False also turns off the warm-up";
  EXPECT_EQ(flat.learning_rate_at(600000), 6e-4);
}

TEST_F(AFileOfNanoGPT, MeansWhatItMeansThereThroughAReference) {
  folder_.file("run.yaml",
               "gradient_accumulation_steps: ${oc.env:DDPXX_TEST_STEPS,40}\n"
               "trainer_config: {use_amp: '${oc.env:DDPXX_TEST_AMP}'}\ndecay_lr: '${oc.env:DDPXX_TEST_DECAY,False}'\n");
  const OfRanks ranks{"8"};
  ::setenv("DDPXX_TEST_AMP", "True", 1);
  const auto config = parse({"run.yaml", "data.path=x"});
  EXPECT_EQ(config.training.accumulation_steps, 5) << "40 micro-batches, divided by 8 ranks";
  EXPECT_EQ(config.precision, PrecisionName::fp16);
  EXPECT_EQ(config.optimizer.schedule, Schedule::none);
  ::setenv("DDPXX_TEST_STEPS", "44", 1);
  ::setenv("DDPXX_TEST_AMP", "maybe", 1);
  const auto text = refusal({"run.yaml", "data.path=x"});
  EXPECT_NE(text.find("run.yaml:1:30: gradient_accumulation_steps: 44 micro-batches"), std::string::npos) << text;
  EXPECT_NE(text.find("trainer_config.use_amp: is neither true nor false"), std::string::npos) << text;
  ::unsetenv("DDPXX_TEST_STEPS");
  ::unsetenv("DDPXX_TEST_AMP");
  // The printed configuration reads back: the setting itself does not translate what was written for its alias.
  const std::vector<const char*> line{"gradient_accumulation_steps=${oc.env:DDPXX_TEST_STEPS,40}"};
  RunConfig printed;
  ConfigBuilder builder{table_of<RunConfig>(), &printed};
  builder.apply(read_arguments(line, table_of<RunConfig>()).entries);
  builder.finish();
  EXPECT_EQ(builder.as_written(*table_of<RunConfig>().find("training.accumulation_steps")), std::nullopt);
}

TEST_F(AFileOfNanoGPT, IsHeldToADefaultOnlyWhereNothingReplacesIt) {
  folder_.file("small.py", "n_layer = 6\n");
  folder_.file("steps.py", "gradient_accumulation_steps = 32\n");
  const OfRanks ranks{"16"};
  EXPECT_EQ(parse({"steps.py", "data.path=x"}).training.accumulation_steps, 2);
  EXPECT_EQ(parse({"small.py", "data.path=x", "--gradient_accumulation_steps=48"}).training.accumulation_steps, 3);
  EXPECT_EQ(parse({"small.py", "data.path=x", "training.accumulation_steps=5"}).training.accumulation_steps, 5);
  const auto text = refusal({"small.py", "data.path=x"});
  EXPECT_NE(text.find("nanoGPT's train.py:3:30: gradient_accumulation_steps: 40 micro-batches"), std::string::npos)
      << text;
  const std::vector<const char*> line{"mingpt", "steps.py", "data.path=x", "training.accumulation_steps=5"};
  testing::internal::CaptureStderr();
  parse_config<RunConfig>(4, line.data());
  EXPECT_EQ(testing::internal::GetCapturedStderr().find("counts the micro-batches"), std::string::npos)
      << "a replaced value must not cause a notice";
}

TEST_F(AFileOfNanoGPT, LiesBeneathOtherFilesAndIsBlamed) {
  folder_.file("small.py", "n_layer = 6\n");
  folder_.file("more.yaml", "model: {n_layer: 4}\n");
  EXPECT_EQ(parse({"more.yaml", "small.py", "data.path=x"}).model.n_layer, 6);
  EXPECT_EQ(parse({"small.py", "more.yaml", "data.path=x"}).model.n_layer, 4);
  EXPECT_FALSE(parse({"more.yaml", "data.path=x"}).model.tied_head);
  EXPECT_EQ(parse({"more.yaml", "data.path=x"}).training.max_steps, 0)
      << "nanoGPT's defaults apply only with a file of nanoGPT";
  const std::vector<const char*> line{"mingpt", "small.py", "data.path=x"};
  testing::internal::CaptureStderr();
  const auto record = parse_recorded<RunConfig>(3, line.data()).record;
  EXPECT_NE(testing::internal::GetCapturedStderr().find("small.py:1:1: is read as one of nanoGPT's"),
            std::string::npos);
  EXPECT_NE(record.yaml.find("# small.py:1:11; overrides nanoGPT's train.py:2:18 (12); default null"),
            std::string::npos)
      << record.yaml;
}

TEST_F(AFileOfNanoGPT, IsRefusedWhereItsValuesHaveNoPlace) {
  folder_.file("odd.py", "gradient_accumulation_steps = 5\ndecay_lr = 3\n");
  const OfRanks ranks{"8"};
  const auto text = refusal({"odd.py", "data.path=x"});
  EXPECT_NE(text.find("odd.py:1:31: gradient_accumulation_steps: 5 micro-batches, which nanoGPT counts over all ranks, "
                      "do not divide among 8 ranks"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("odd.py:2:12: decay_lr: is neither true nor false"), std::string::npos) << text;
  folder_.file("char.py", "dataset = 'shakespeare_char'\n");
  EXPECT_NE(refusal({"char.py"}).find("data.path: no text to train on: set data.path=FILE"), std::string::npos);
  EXPECT_EQ(parse({"char.py", "data.path=x"}).data.text.path, "x");
}

TEST_F(AFileOfNanoGPT, LeavesATextThatWasNamedBeforeItsDataset) {
  folder_.file("char.py", "dataset = 'shakespeare_char'\n");
  folder_.file("text.yaml", "data: {path: '${oc.env:DDPXX_TEST_TEXT,x}'}\n");
  EXPECT_EQ(parse({"text.yaml", "char.py"}).data.text.path, "x");
  EXPECT_EQ(parse({"text.yaml", "dataset=shakespeare"}).data.text.path, "x");
  EXPECT_EQ(parse({"text.yaml", "dataset=books/a.txt"}).data.text.path, "books/a.txt");
  const auto filled = fill<RunConfig>(kText, {"dataset=shakespeare"});
  EXPECT_EQ(filled.config.data.text.path, "input.txt");
  EXPECT_NE(filled.notices.find("is left out: data.path was given before"), std::string::npos) << filled.notices;
}

TEST_F(AFileOfNanoGPT, ThatEvaluatesIsRefusedWithTheCommandThatDoes) {
  folder_.file("eval_gpt2.py", "batch_size = 8\neval_iters = 500\neval_only = True\nwandb_log = False\n");
  const auto text = refusal({"eval_gpt2.py", "data.path=x"});
  EXPECT_NE(text.find("eval_only: \"True\" is not supported (allowed: false): mingpt evaluate --from PLACE"),
            std::string::npos)
      << text;
}

TEST_F(AFileOfNanoGPT, IsNotRun) {
  folder_.file("tune.py", "import time\nmax_iters = 20\nwandb_run_name = 'ft-' + str(time.time())\nn_layers = 4\n");
  EXPECT_EQ(
      refusal({"tune.py", "data.path=x"}),
      "tune.py:1:1: is not a line NAME = VALUE; a configuration in Python is read and not run: write what comes "
      "out\n    import time\n    ^\n"
      "tune.py:3:18: wandb_run_name: \"'ft-' + str(time.time())\" is not a number, text, True, False, None, tuple "
      "or list; a configuration in Python is read and not run: write what comes out\n"
      "    wandb_run_name = 'ft-' + str(time.time())\n                     ^\n"
      "tune.py:4:1: n_layers: unknown key; did you mean model.n_layer?\n    n_layers = 4\n    ^");
  EXPECT_EQ(refusal({"none.py", "data.path=x"}),
            "argument 1: \"none.py\": there is no file \"none.py\" in the current folder or in /nowhere");
}

TEST_F(AFileOfNanoGPT, MayHoldThePrompt) {
  folder_.file("prompt.txt", "Once upon\na time");
  const auto config = parse({"--start=FILE:prompt.txt", "--max_new_tokens=5", "data.path=x"});
  EXPECT_EQ(config.generate.prompt, "FILE:prompt.txt");
  EXPECT_EQ(prompt_text(config.generate), "Once upon\na time");
  EXPECT_EQ(prompt_text({.tokens = 5, .prompt = "FILE me"}), "FILE me");
  EXPECT_EQ(prompt_text({.prompt = "FILE me"}), "");
  EXPECT_EQ(parse({"--start=FILE:none.txt", "data.path=x"}).generate.prompt, "FILE:none.txt")
      << "the file is read only if text is generated";
}

TEST_F(AFileOfNanoGPT, HoldsNoPromptThatWouldBeCutOrWaitedFor) {
  folder_.file("most.txt", std::string(std::size_t{1} << 20, 'x'));
  folder_.file("more.txt", std::string((std::size_t{1} << 20) + 1, 'x'));
  ASSERT_EQ(::mkfifo("pipe", 0600), 0);
  const auto with = [](const char* start) { return refusal({start, "--max_new_tokens=5", "data.path=x"}); };
  EXPECT_EQ(with("--start=FILE:most.txt"), "no error");
  EXPECT_EQ(with("--start=FILE:more.txt"),
            "argument 1: \"--start=FILE:more.txt\": cannot read more.txt: it has more than 1 MiB, which is too much "
            "for a prompt");
  EXPECT_EQ(with("--start=FILE:pipe"), "argument 1: \"--start=FILE:pipe\": cannot read pipe: it is not a regular file");
}

TEST_F(AFileOfNanoGPT, IsLookedForWhereTheUserStandsFirst) {
  folder_.file("train.py", "seed = 1\n");
  folder_.file("conf/train.py", "seed = 2\n");
  folder_.file("conf/there.py", "seed = 4\n");
  folder_.file("more/other.py", "seed = 3\n");
  EXPECT_EQ(parse({"train.py", "--config-path=conf", "data.path=x"}).training.seed, 1);
  EXPECT_EQ(parse({"--config-path=conf", "-cn", "train.py", "data.path=x"}).training.seed, 1);
  EXPECT_EQ(parse({"--config-path=conf", "there.py", "data.path=x"}).training.seed, 4);
  EXPECT_EQ(parse({"--config-path=conf", "--config-dir=more", "-cn", "other.py", "data.path=x"}).training.seed, 3);
}

}  // namespace
}  // namespace ddpxx::command_lines_test
