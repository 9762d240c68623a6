// Runs the sample program with bad input and with ranks that die.
#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <sys/socket.h>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../launch/started_program.hpp"
#include "../temporary_folder.hpp"
#include "../terminal.hpp"
#include "../unused_port.hpp"
#include "failing_calls.hpp"

namespace mingpt_test {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

using Words = std::vector<std::string>;

std::string python() {
  const char* path = std::getenv("DDPXX_PYTHON");
  return path != nullptr ? path : "/usr/bin/python3";
}

std::string program(const char* name) { return program_folder() + "/" + name; }

class Mingpt : public testing::Test {
 protected:
  Words settings(const Words& more = {}) const {
    Words words{"data.path=" + text_, "training.device=cpu", "training.max_steps=3", "training.max_epochs=0"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  /// Runs one process with these additional environment variables.
  Ended alone(const Words& more, const Words& environment = {}) const {
    Words command{"/usr/bin/env", "OMP_NUM_THREADS=1"};
    command.insert(command.end(), environment.begin(), environment.end());
    command.push_back(program("mingpt"));
    for (const auto& word : settings(more)) command.push_back(word);
    return StartedProgram{command}.wait();
  }
  Words launched(int ranks, const Words& more) const {
    Words command{program("ddpxx-run"), "--standalone", "--nproc-per-node", std::to_string(ranks), program("mingpt")};
    for (const auto& word : settings(more)) command.push_back(word);
    return command;
  }
  Ended ranks(int count, const Words& more) const { return StartedProgram{launched(count, more)}.wait(); }

  TemporaryFolder folder_;
  std::string text_ = folder_.file("text.txt", [] {
    std::string text;
    for (int i = 0; i < 300; ++i) text += "the quick brown fox " + std::to_string(i * i) + "\n";
    return text;
  }());
};

TEST_F(Mingpt, TrainsAloneAndOnTwoRanks) {
  EXPECT_EQ(alone({}).code, 0);
  const auto two = ranks(2, {"generate.tokens=20", "training.eval_every=3"});
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_THAT(two.out, AllOf(HasSubstr("unique."), HasSubstr("number of parameters: 0.08M"), HasSubstr("step 3/3"),
                             HasSubstr("val_loss"), HasSubstr("--- generated text ---")));
}

TEST_F(Mingpt, SaysWhichVersionItIs) {
  const auto run = StartedProgram{{program("mingpt"), "--version"}}.wait();
  EXPECT_EQ(run.code, 0);
  EXPECT_THAT(run.out, testing::MatchesRegex("mingpt of ddpxx [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST_F(Mingpt, JobsOfASweepShareNoPlace) {
  const auto sweep = folder_ / "sweep";
  const auto run = alone(
      {"training.save_dir=sv", "training.metrics=rows", "-m", "training.seed=1,2", "--sweep-dir=" + sweep.string()});
  EXPECT_EQ(run.code, 0) << run.err << run.out;
  for (const char* job : {"0", "1"}) {
    EXPECT_TRUE(std::filesystem::exists(sweep / job / "sv" / "step-00000003")) << job;
    EXPECT_TRUE(std::filesystem::exists(sweep / job / "metrics.jsonl")) << job;
    EXPECT_THAT(StartedProgram::text_of(sweep / job / "log"), testing::Not(HasSubstr("nothing left to do"))) << job;
  }
}

TEST_F(Mingpt, EndsWith2BeforeAnyJobOfASweepWhoseLastOneCannotRun) {
  const auto sweep = folder_ / "sweep";
  const auto run = alone({"-m", "optimizer.learning_rate=1e-3,-1", "--sweep-dir=" + sweep.string()});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("job 1: argument 5: \"optimizer.learning_rate=-1\": \"-1\" is out of range"));
  EXPECT_FALSE(std::filesystem::exists(sweep));
}

TEST_F(Mingpt, TrainsOnTokensAndGeneratesTheirNumbers) {
  std::string bytes;
  for (int i = 0; i < 3000; ++i) bytes += {static_cast<char>(i * i % 7), static_cast<char>(i % 5 == 0)};
  const auto tokens = folder_.file("train.bin", bytes);
  const auto place = (folder_ / "run").string();
  const Words data{"data.path=" + tokens, "data.format=tokens", "data.vocab_size=320", "data.block_size=16"};
  auto train = data;
  train.insert(train.end(), {"data.val_path=" + tokens, "model.tied_head=true", "training.eval_every=3",
                             "training.save_dir=" + place, "generate.tokens=4", "generate.prompt=256 3"});
  const auto two = ranks(2, train);
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_THAT(two.out, AllOf(HasSubstr("Data has 3000 tokens; vocab_size is 320."), HasSubstr("val_loss"),
                             testing::ContainsRegex("--- generated text ---\n.*256 3 [0-9]+ [0-9]+ [0-9]+ [0-9]+\n")));

  const auto mingpt = [&](Words words) {
    words.insert(words.begin(), program("mingpt"));
    return StartedProgram{words}.wait();
  };
  const auto generated = mingpt({"generate", "--from", place, "generate.prompt=256,3", "generate.tokens=2"});
  EXPECT_EQ(generated.code, 0) << generated.err;
  EXPECT_THAT(generated.out, testing::ContainsRegex("256 3 [0-9]+ [0-9]+\n"));
  const auto no_token = mingpt({"generate", "--from", place, "generate.prompt=320"});
  EXPECT_EQ(no_token.code, 3);
  EXPECT_THAT(no_token.err, HasSubstr("\"320\" is not a token: the model has the tokens 0 to 319"));
  const auto evaluated = mingpt({"evaluate", "--from", place});
  EXPECT_EQ(evaluated.code, 0) << evaluated.err;
  EXPECT_THAT(evaluated.out, HasSubstr("val_loss"));

  auto small = data;
  small.push_back("data.vocab_size=256");
  const auto beyond = alone(small);
  EXPECT_EQ(beyond.code, 3);
  EXPECT_THAT(beyond.err, HasSubstr("and vocab_size=256 has the ids below that"));
  for (const char* field : {"data.path=", "data.val_path="}) {
    auto stored = data;
    stored.push_back(field + std::string{"s3://bucket/train.bin"});
    const auto refused = alone(stored);
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("tokens are files of this machine: copy them first"));
  }
  EXPECT_THAT(alone({"data.vocab_size=256"}).err, HasSubstr("leave it out, or set format=tokens"));
  for (const auto& [setting, remedy] :
       {std::pair{"data.max_bytes=1000", "set it to 0"}, std::pair{"data.truncate=0.5", "set it to 1"}}) {
    auto cut = data;
    cut.push_back(setting);
    const auto refused = alone(cut);
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("tokens are used as a whole: " + std::string{remedy}));
  }
}

TEST_F(Mingpt, ResumesWhereTheFormOfGELUIsTheSameByAnotherSpelling) {
  const auto place = "training.save_dir=" + (folder_ / "run").string();
  for (const auto& [form, steps] : {std::pair{"null", "1"}, {"tanh", "2"}, {"null", "3"}}) {
    const auto run = alone({place, std::string{"model.gelu="} + form, std::string{"training.max_steps="} + steps});
    EXPECT_EQ(run.code, 0) << form << run.err;
  }
  const auto other = alone({place, "model.gelu=exact", "training.max_steps=4"});
  EXPECT_EQ(other.code, 4);
  EXPECT_THAT(other.err, HasSubstr("model.gelu: null in the snapshot, \"exact\" now"));
}

TEST_F(Mingpt, ResumesByNanoGPTsWordOnlyWhereThereIsASnapshot) {
  const auto place = (folder_ / "run").string();
  Words words{"init_from=resume", "training.max_steps=1", "training.save_dir=" + place};
  const auto refused = alone(words);
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err, HasSubstr("init_from=resume: training.save_dir=" + place + " has no snapshot"));
  words.front() = "init_from=";
  EXPECT_EQ(alone(words).code, 0);
  words = {"init_from=resume", "training.max_steps=2", "training.save_dir=" + place};
  const auto resumed = alone(words);
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("step 2/2"));
}

TEST_F(Mingpt, TrainsOnSeveralFilesOfMoreThan65536Tokens) {
  const auto tokens = [](int count) {
    std::string bytes;
    for (int i = 0; i < count; ++i) bytes += {static_cast<char>(i * i % 7), '\0', static_cast<char>(i % 5 == 0), '\0'};
    return bytes;
  };
  folder_.file("data/train_1.bin", tokens(300));
  folder_.file("data/train_2.bin", tokens(200));
  folder_.file("data/val.bin", tokens(100));
  const auto place = (folder_ / "run").string(), folder = (folder_ / "data").string();
  Words words{"data.path=" + folder + "/train_*.bin",
              "data.val_path=" + folder + "/val.bin",
              "data.format=tokens",
              "data.vocab_size=65600",
              "data.block_size=16",
              "model.n_layer=1",
              "model.n_head=2",
              "model.n_embd=8",
              "training.max_steps=1",
              "training.save_dir=" + place};
  const auto trained = alone(words);
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("Data has 500 tokens in 2 files; vocab_size is 65600."));

  folder_.file("data/train_3.bin", tokens(100));
  words.push_back("training.max_steps=2");
  const auto more = alone(words);
  EXPECT_EQ(more.code, 4) << more.err;
  EXPECT_THAT(more.err, HasSubstr("500 tokens in 2 files"));
  auto all = words;
  all.insert(all.end(), {"data.path=" + folder, "data.val_path="});
  const auto unnamed = alone(all);
  EXPECT_EQ(unnamed.code, 2);
  EXPECT_THAT(unnamed.err, HasSubstr("val.bin, which is for validation by its name: name the files to train on"));
  const auto train = folder + "/train_1.bin", val = folder + "/val.bin";
  for (const auto& [path, val_path, both] :
       {std::tuple{folder, val, val}, std::tuple{train, folder, train}, std::tuple{folder, folder + '/', train}}) {
    auto mixed = words;
    mixed.insert(mixed.end(), {"data.path=" + path, "data.val_path=" + val_path});
    const auto refused = alone(mixed);
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("both name "), HasSubstr(std::filesystem::path{both}.filename().string() +
                                                                      ": name the files of each alone")));
  }
}

TEST_F(Mingpt, GoesOnWithATiedHeadThatPythonsFileHasUnderBothNames) {
  const auto place = (folder_ / "run").string(), file = (folder_ / "tied.pt").string(),
             back = (folder_ / "back").string();
  const auto train = [&](const std::string& where, const char* steps) {
    return alone({"model.tied_head=true", "strategy=single", "training.max_steps=" + std::string{steps},
                  "training.save_dir=" + where});
  };
  ASSERT_EQ(train(place, "3").code, 0);
  for (const char* layout : {"mingpt_ddp", "guide"}) {
    std::filesystem::remove_all(back);
    for (const auto& [from, to] : {std::pair{place, file}, std::pair{file, back}}) {
      Words command{program("ddpxx"), "snapshot", "convert", from, "to=" + to};
      if (to == file) command.push_back(std::string{"layout="} + layout);
      const auto converted = StartedProgram{command}.wait();
      ASSERT_EQ(converted.code, 0) << converted.err;
    }
    const auto script = "import torch; s = torch.load('" + file +
                        "'); m = s.get('model_state') or s['model_state_dict']; " +
                        "print(m['lm_head.weight'].data_ptr() == m['transformer.wte.weight'].data_ptr())";
    EXPECT_EQ((StartedProgram{{python(), "-c", script}}.wait().out), "True\n");
    const auto resumed = train(back, "5");
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_THAT(resumed.out, HasSubstr("step 5/5"));
    EXPECT_THAT(resumed.out + resumed.err, HasSubstr("resumed at step 3"));
  }
}

TEST_F(Mingpt, PlansGPT2OnTokensThatAreNotThere) {
  // At its real size, where a step with arithmetic would take a minute on a CPU.
  const auto plan =
      StartedProgram{{program("mingpt"), "plan", "--config-name=gpt2_124m.yaml", "strategy=single"}}.wait();
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, AllOf(HasSubstr("12 layers of width 768 with 124.48M parameters, 1024 tokens by 12 samples"),
                              testing::ContainsRegex("parameters +497903616 bytes"),
                              testing::ContainsRegex("gradients +497903616 bytes")));
}

TEST_F(Mingpt, PlansWithoutAText) {
  const auto plan = StartedProgram{{program("mingpt"), "plan", "world_size=8"}}.wait();
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, AllOf(HasSubstr("no text is given"), HasSubstr("ddp in fp32 on 8 ranks"), HasSubstr("a rank")));
  EXPECT_THAT(plan.err, HasSubstr("not ready to run"));
}

TEST_F(Mingpt, PlansTheLargestBatchThatFits) {
  const auto plan = [](int batch_size, const Words& more = {}) {
    Words words{
        program("mingpt"), "plan",           "training.device=cpu", "model.n_layer=2",
        "model.n_embd=64", "model.n_head=2", "data.block_size=32",  "data.batch_size=" + std::to_string(batch_size)};
    words.insert(words.end(), more.begin(), more.end());
    return StartedProgram{words}.wait().out;
  };
  const auto number = [](const std::string& out, const std::string& before) {
    std::smatch match;
    return std::regex_search(out, match, std::regex{before + " +([0-9]+)"}) ? std::stoll(match[1]) : -1;
  };
  const auto asked = plan(4, {"memory=16MiB"});
  const auto largest = static_cast<int>(number(asked, "the largest data.batch_size whose tensors fit in 16 MiB is"));
  ASSERT_GT(largest, 4) << asked;
  // The activations of a larger batch are not exactly in proportion.
  EXPECT_LE(number(plan(largest), "a rank"), 16.1 * 1024 * 1024);
  EXPECT_GT(number(plan(largest + largest / 50 + 1), "a rank"), 16 * 1024 * 1024);
  EXPECT_THAT(plan(4, {"memory=100KiB"}), HasSubstr("not one sample fits in 100 KiB: choose recompute=all"));
}

TEST_F(Mingpt, PlansTheCopyOfASnapshotThatIsWrittenInTheBackground) {
  const auto plan = [](Words words) {
    words.insert(words.begin(), {program("mingpt"), "plan", "training.device=cpu", "world_size=2"});
    return StartedProgram{words}.wait().out;
  };
  const auto bytes = [](const std::string& out, const std::string& row) {
    std::smatch match;
    return std::regex_search(out, match, std::regex{row + " +([0-9]+) bytes"}) ? std::stoll(match[1]) : -1;
  };
  const auto foreground = plan({"training.save_dir=runs"});
  EXPECT_THAT(foreground, Not(HasSubstr("snapshots")));
  EXPECT_THAT(foreground, HasSubstr("A process on a CPU has some 150 MiB of libraries beside them"));
  EXPECT_THAT(plan({"snapshot.writing=background"}), Not(HasSubstr("snapshots"))) << "it saves nothing";
  for (const std::string strategy : {"ddp", "fsdp"})
    for (const auto& [decay, tensors] : {std::pair{"0", 3}, std::pair{"0.9", 4}}) {
      const auto out = plan({"training.save_dir=runs", "snapshot.writing=background", "strategy=" + strategy,
                             "training.ema_decay=" + std::string{decay}});
      const auto whole = bytes(out, "parameters") * (strategy == "fsdp" ? 2 : 1);
      // A rank of FSDP holds a little more than its share, since the parameters of a unit are padded.
      EXPECT_NEAR(static_cast<double>(bytes(out, "snapshots")), static_cast<double>(whole * tensors) / 2,
                  0.01 * static_cast<double>(whole))
          << out;
    }
}

TEST_F(Mingpt, PlansWithSettingsInAllSpellings) {
  const auto plan = [](Words words) {
    words.insert(words.begin(), {program("mingpt"), "plan", "model.n_layer=1", "data.block_size=8"});
    return StartedProgram{words}.wait();
  };
  for (const Words& words : {Words{"--world_size=8"},
                             {"--world_size", "8"},
                             {"--world-size", "8", "--no-overlaps"},
                             {"--overlaps", "--link.bandwidth=10GB", "--ranks-per-core", "2", "world_size=8"},
                             {"--overlaps", "false", "--link.latency", "1ms", "--world-size=8"}}) {
    const auto planned = plan(words);
    EXPECT_EQ(planned.code, 0) << planned.err;
    EXPECT_THAT(planned.out, HasSubstr("ddp in fp32 on 8 ranks"));
  }
  EXPECT_THAT(plan({"--world_sze=8"}).err, HasSubstr("unknown key; did you mean world_size?"));
  for (const Words& as_json : {Words{"world_size=0", "--errors=json"}, Words{"--errors", "json", "world_size=0"}})
    EXPECT_THAT(plan(as_json).err, testing::StartsWith("[{\"source\":\"argument "));
  EXPECT_EQ(plan({"--errors", "json", "world_size=8"}).code, 0);
  EXPECT_THAT(plan({"--time", "world_size=x"}).err, HasSubstr("argument 5: \"world_size=x\""));
  EXPECT_THAT(plan({"world_size=2", "--time", "sed=1"}).err, HasSubstr("argument 6: \"sed=1\""));
  EXPECT_THAT(plan({"--world_size", "-1"}).err, HasSubstr("--world_size"));
  EXPECT_THAT(plan({"world_size=4", "gradient_accumulation_steps=40", "--blame"}).out,
              testing::ContainsRegex("accumulation_steps: 10 +#"))
      << "nanoGPT counts the micro-batches of all planned ranks";
  const auto help = plan({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("world_size=1 "), HasSubstr("link.bandwidth="), HasSubstr("ranks_per_core=1.0"),
                              HasSubstr("overlaps=true"), HasSubstr("usage: mingpt plan"),
                              HasSubstr("optimizer.learning_rate=")));
  EXPECT_THAT(plan({"--help", "link"}).out, testing::StartsWith("link: The links between the ranks"));
  EXPECT_THAT(plan({"-h", "optimizer.beta1"}).out, testing::StartsWith("  optimizer.beta1="));
}

TEST_F(Mingpt, PlansTheTimeOfAStepOnRanksThatAreNotThere) {
  const auto plan = StartedProgram{{program("mingpt"), "plan", "--time", "world_size=6", "link.latency=1s",
                                    "link.bandwidth=1GB", "data.batch_size=1", "data.block_size=8"}}
                        .wait();
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_THAT(plan.out, AllOf(HasSubstr("simulated: one rank's steps on this machine"),
                              testing::ContainsRegex("\n +1 .* 0.000 ms +100.0 %\n +2 .*\n +4 .*\n +6 ")));
  EXPECT_THAT(plan.out, testing::ContainsRegex("\n +6 +[0-9]{5,}[.]"))
      << "an all-reduce of six ranks is ten messages that follow each other, of 1 s each";
}

TEST_F(Mingpt, PlansNoTimeOverLinksOfUnknownSpeed) {
  const auto plan = StartedProgram{{program("mingpt"), "plan", "--time", "world_size=2"}}.wait();
  EXPECT_EQ(plan.code, 2);
  EXPECT_THAT(plan.err, AllOf(HasSubstr("link.bandwidth"), HasSubstr("ddpxx net")));
}

TEST_F(Mingpt, EndsWith2ForAMistypedKeyAndSaysWhatWasMeant) {
  const auto run = alone({"optimzer.learning_rate=1"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("optimzer.learning_rate"), HasSubstr("did you mean optimizer.learning_rate?")));
}

TEST_F(Mingpt, SaysAMistypedKeyOnceWithSeveralRanksAndDoesNotStartThemAgain) {
  Words command = launched(4, {"optimzer.learning_rate=1"});
  command.insert(command.begin() + 1, "--max-restarts=3");
  const auto run = StartedProgram{command}.wait();
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("[rank0]"), HasSubstr("did you mean optimizer.learning_rate?")));
  // A restart, or a rank that printed its error before it was ended, would add a line.
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 2) << run.err;
}

// Rank 0 waits at the meeting for the other rank, which reports when rank 0 has had time to do so.
TEST_F(Mingpt, EndsWith2ForAMistypedKeyThatOnlyAnotherRankHas) {
  std::string line = program("mingpt");
  for (const auto& word : settings()) line += " '" + word + "'";
  const auto run = StartedProgram{{program("ddpxx-run"), "--standalone", "--nproc-per-node", "2", "/bin/sh", "-c",
                                   "exec " + line + " $([ $RANK = 1 ] && echo optimzer.learning_rate=1)"}}
                       .wait();
  EXPECT_EQ(run.code, 2) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("[rank1]"), HasSubstr("did you mean optimizer.learning_rate?")));
}

TEST_F(Mingpt, EndsWith2ForAMistypedKeyInAFileWithItsPlace) {
  folder_.file("bad.yaml", "data:\n  batch_sise: 4\n");
  const auto run = alone({"--config-path=" + folder_.path().string(), "--config-name=bad.yaml"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("bad.yaml:2:3: data.batch_sise"), HasSubstr("did you mean data.batch_size?")));
}

TEST_F(Mingpt, EndsWith2ForAMissingConfigFile) {
  const auto run = alone({"--config-name=none_such.yaml"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("none_such.yaml"));
}

TEST_F(Mingpt, EndsWith2ForAWidthThatTheHeadsDoNotDivide) {
  const auto run = alone({"model.n_embd=50", "model.n_head=4"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err,
              AllOf(HasSubstr("model.n_embd"), HasSubstr("50 is not divisible by n_head (4); nearest: 48 or 52")));
}

TEST_F(Mingpt, EndsWith2ForAGpuThatIsNotThere) {
  const auto run = alone({"training.device=cuda"}, {"CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("device=cuda: this build has no CUDA, or this host no GPU"));
}

TEST_F(Mingpt, EndsWith2ForAMetricsFileThatCannotBe) {
  const auto run = ranks(2, {"training.metrics=/proc/none/metrics.jsonl"});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, AllOf(HasSubstr("/proc/none"),
                             EndsWith("ddpxx-run: rank 0: exit code 2 (in ddpxx programs: a wrong configuration)\n")));
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 2) << "the message must be printed once:\n" << run.err;
}

TEST_F(Mingpt, EndsWith2ForAPlaceThatIsNoDirectoryAndAnEvaluationOfNothing) {
  const auto bucket = alone({"training.save_dir=gs://bucket/prefix"});
  EXPECT_EQ(bucket.code, 2);
  EXPECT_THAT(bucket.err, HasSubstr("\"gs://bucket/prefix\": gs:// is not a supported kind of place"));
  const auto nothing = alone({"training.eval_every=1", "data.train_split=1"});
  EXPECT_EQ(nothing.code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("leaves nothing to evaluate on"));
}

TEST_F(Mingpt, EndsWith5WhenTheRanksHaveDifferentSettings) {
  std::string line = program("mingpt");
  for (const auto& word : settings()) line += " '" + word + "'";
  const std::vector<std::pair<std::string, std::string>> cases{
      {"data.batch_size=$((RANK + 1))", "batch_size: 1 on rank 0, 2 on rank 1"},
      {"model.n_layer=$((RANK + 1))", "model.n_layer: 1 on rank 0, 2 on rank 1"},
      {"strategy=$([ $RANK = 1 ] && echo fsdp || echo ddp)",
       "strategy: ddp (Recompute<DDP>) on rank 0, fsdp (Recompute<FSDP>) on rank 1"},
      {"strategy.first_bucket_bytes=$((RANK + 100))", "strategy.first_bucket_bytes: 100 on rank 0, 101 on rank 1"},
      {"generate.tokens=$RANK strategy=fsdp", "generate.tokens: 0 on rank 0, 1 on rank 1"},
      {"strategy.shard_size=$RANK strategy=hsdp", "strategy.shard_size: 2 on rank 0, 1 on rank 1"}};
  for (const auto& [words, sentence] : cases) {
    const auto run = StartedProgram{
        {program("ddpxx-run"), "--standalone", "--nproc-per-node", "2", "/bin/sh", "-c",
         "exec " + line + " comm.collective_timeout=20 " +
             words}}.wait();
    EXPECT_EQ(run.code, 5) << words;
    EXPECT_THAT(run.err, HasSubstr("different settings:\n")) << words;
    EXPECT_THAT(run.err, HasSubstr(sentence)) << words;
  }
}

TEST_F(Mingpt, EndsWith3ForMissingAndEmptyData) {
  const auto missing = alone({"data.path=" + (folder_ / "none.txt").string()});
  EXPECT_EQ(missing.code, 3);
  EXPECT_THAT(missing.err, HasSubstr("none.txt"));
  const auto empty = alone({"data.path=" + folder_.file("empty.txt", "")});
  EXPECT_EQ(empty.code, 3);
  EXPECT_THAT(empty.err, HasSubstr("empty.txt"));
}

TEST_F(Mingpt, SaysOnceThatTheDataAreMissing) {
  const auto run = ranks(4, {"data.path=" + (folder_ / "none.txt").string()});
  EXPECT_EQ(run.code, 3);
  EXPECT_THAT(run.err, AllOf(HasSubstr("[rank0]: mingpt: rank 0: error: cannot open"), HasSubstr("none.txt")));
  EXPECT_EQ(run.err.find("cannot open"), run.err.rfind("cannot open")) << "the message must be printed once:\n"
                                                                       << run.err;
}

TEST_F(Mingpt, EndsWith3ForABlockLargerThanTheText) {
  const auto run = alone({"data.path=" + folder_.file("short.txt", "abc def"), "data.block_size=64"});
  EXPECT_EQ(run.code, 3);
  EXPECT_THAT(run.err, AllOf(HasSubstr("64"), HasSubstr("7")));
}

TEST_F(Mingpt, EndsAtOnceForSizesThatNoMachineHas) {
  const std::pair<Words, const char*> cases[] = {
      {{"data.batch_size=1000000000000"}, "allow at most"},
      {{"training.accumulation_steps=1000000000"}, "is outside [1,"},
      {{"data.num_workers=1000000"}, "data.num_workers"},
      {{"generate.tokens=1e18"}, "generate.tokens"},
      {{"model.n_layer=1000000000"}, "of memory: choose a smaller model.n_layer"},
      {{"model.n_layer=9223372036854775807"}, "have weights of more than"},
      {{"model.n_embd=3000000000"}, "of memory: choose a smaller model.n_layer"},
  };
  for (const auto& [words, said] : cases) {
    const auto begun = std::chrono::steady_clock::now();
    const auto run = alone(words);
    EXPECT_EQ(run.code, 2) << words[0];
    EXPECT_THAT(run.err, HasSubstr(said));
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds{30}) << words[0];
  }
  const auto block = alone({"data.block_size=9223372036854775807"});
  EXPECT_EQ(block.code, 3);
  EXPECT_THAT(block.err, HasSubstr("block_size=9223372036854775807 needs a longer text"));
}

TEST_F(Mingpt, EndsWith3ForFewerSamplesThanRanks) {
  const auto run =
      ranks(3, {"data.path=" + folder_.file("short.txt", "abcdefghijkl"), "data.block_size=10", "data.train_split=1"});
  EXPECT_EQ(run.code, 3);
  EXPECT_THAT(run.err, HasSubstr("the training set has 2 samples for 3 ranks"));
}

TEST_F(Mingpt, EndsWith3ForBytesThatAreNoText) {
  const auto run = alone({"data.path=" + folder_.file("train.bin", std::string{"\x12\0\x13\0", 4})});
  EXPECT_EQ(run.code, 3);
  EXPECT_THAT(run.err, AllOf(HasSubstr("train.bin is not text: the byte at offset 1 is NUL"), HasSubstr("token ids")));
}

TEST_F(Mingpt, EndsWith4ForAnotherTextOfTheSameSizeAndGoesOnWithTheSameTextElsewhere) {
  const auto save = "training.save_dir=" + (folder_ / "save").string();
  EXPECT_EQ(alone({save}).code, 0);
  auto text = StartedProgram::text_of(text_);
  const auto copy = alone({save, "data.path=" + folder_.file("copy.txt", text), "training.max_steps=4"});
  EXPECT_EQ(copy.code, 0) << copy.err;
  EXPECT_THAT(copy.err, testing::Not(HasSubstr("changed setting: data.path")));
  std::replace(text.begin(), text.end(), 'q', 'a');
  const auto other = alone({save, "data.path=" + folder_.file("other.txt", text), "training.max_steps=5"});
  EXPECT_EQ(other.code, 4);
  EXPECT_THAT(other.err, AllOf(HasSubstr("the alphabet: "), HasSubstr("the text: ")));
}

TEST_F(Mingpt, ValidatesOnATextOfItsOwnOrNamesItsUnknownCharacter) {
  const auto text = "data.val_path=" + folder_.file("validation.txt", std::string(100, 'q'));
  const auto run = alone({text, "training.eval_every=3"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("val_loss"));
  const auto unknown = alone({"data.val_path=" + folder_.file("unknown.txt", std::string(100, '%'))});
  EXPECT_EQ(unknown.code, 3);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("the character '%' does not occur"), HasSubstr("unknown.txt")));
}

TEST_F(Mingpt, EndsWith3WhenTheHeldOutTextIsTooShortToEvaluate) {
  const auto run = alone({"training.eval_every=1", "data.train_split=0.999"});
  EXPECT_EQ(run.code, 3);
  EXPECT_THAT(run.err, HasSubstr("shorter than one sample of data.block_size=64"));
}

TEST_F(Mingpt, EndsWith4ForASnapshotOfAnotherModelAndListsTheDifferences) {
  const auto save = "training.save_dir=" + (folder_ / "save").string();
  EXPECT_EQ(ranks(2, {save}).code, 0);
  const auto other = ranks(2, {save, "model.n_layer=2"});
  EXPECT_EQ(other.code, 4);
  EXPECT_THAT(other.err, AllOf(HasSubstr("model.n_layer"), HasSubstr("in the snapshot"), HasSubstr("2 now")));
}

TEST_F(Mingpt, ResumesWithAnotherWorldBatchAndLimit) {
  const auto save = "training.save_dir=" + (folder_ / "save").string();
  EXPECT_EQ(ranks(2, {save}).code, 0);
  const auto resumed = alone({save, "data.batch_size=3", "training.max_steps=5", "strategy=single"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.out + resumed.err, AllOf(HasSubstr("resumed at step 3"), HasSubstr("step 5/5")));
}

/// Runs a command of the program without the settings that the trainings of these tests use.
Ended mingpt(const Words& words) {
  Words command{"/usr/bin/env", "OMP_NUM_THREADS=1", program("mingpt")};
  command.insert(command.end(), words.begin(), words.end());
  return StartedProgram{command}.wait();
}
std::string value_behind(const std::string& text, const std::string& word) {
  const auto at = text.rfind(word + ' ');
  if (at == std::string::npos) return "nothing";
  const auto begin = at + word.size() + 1;
  return text.substr(begin, text.find_first_of(" \n,", begin) - begin);
}
/// All files below a folder, with their sizes.
std::map<std::string, std::uintmax_t> files_in(const std::filesystem::path& folder) {
  std::map<std::string, std::uintmax_t> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator{folder})
    if (entry.is_regular_file()) files[entry.path().string()] = entry.file_size();
  return files;
}

TEST_F(Mingpt, SamplesAndEvaluatesASnapshotAndLeavesItsPlaceAsItIs) {
  const auto place = (folder_ / "run").string(), metrics = (folder_ / "run/m.jsonl").string();
  const auto trained = ranks(
      2, {"training.save_dir=" + place, "training.metrics=" + metrics, "training.eval_every=1", "training.save_every=1",
          "snapshot.keep_last=0", "training.max_steps=4", "optimizer.learning_rate=0.01"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto before = files_in(place);

  const auto evaluated = mingpt({"evaluate", "--from", place});
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  std::ifstream rows{metrics};
  std::map<int, double> losses;
  for (std::string row; std::getline(rows, row);)
    if (const auto at = row.find("\"val_loss\":"); at != std::string::npos)
      losses[std::stoi(row.substr(8))] = std::stod(row.substr(at + 11));
  ASSERT_EQ(losses.size(), 4U);
  EXPECT_NEAR(std::stod(value_behind(evaluated.out, "val_loss")), losses[4], 1e-6) << evaluated.out;
  const auto second = mingpt({"evaluate", "--from=" + place + ":2", "strategy=single"});
  EXPECT_NEAR(std::stod(value_behind(second.out, "val_loss")), losses[2], 1e-6) << second.out << second.err;

  std::filesystem::rename(text_, text_ + ".gone");
  const auto sampled =
      mingpt({"generate", "--from", place + ":best", "generate.prompt=the quick", "generate.tokens=30"});
  EXPECT_EQ(sampled.code, 0) << sampled.err;
  EXPECT_EQ(sampled.out.find("the quick"), 0U) << sampled.out;
  EXPECT_EQ(sampled.out.size(), std::string{"the quick"}.size() + 30 + 1) << sampled.out;
  const auto greedy = [&](const char* cache) {
    return mingpt({"generate", "--from", place, "generate.tokens=90", "generate.sample=false", cache}).out;
  };
  EXPECT_EQ(greedy("generate.cache=true"), greedy("generate.cache=false"));
  const auto most_likely = mingpt({"generate", "--from", place, "generate.tokens=90", "generate.top_p=1e-9"});
  EXPECT_EQ(most_likely.out, greedy("generate.cache=true")) << most_likely.err;
  const auto unknown = mingpt({"generate", "--from", place, "generate.prompt=#"});
  EXPECT_EQ(unknown.code, 3);
  EXPECT_THAT(unknown.err, HasSubstr("'#'"));
  EXPECT_EQ(files_in(place), before);
  std::filesystem::rename(text_ + ".gone", text_);
}

TEST_F(Mingpt, CommandsWarnOfNoSettingThatOnlyATrainingUses) {
  std::string tokens;
  for (int i = 0; i < 1000; ++i) tokens += {static_cast<char>(i * i % 7), '\0'};
  const Words model{"data.path=" + folder_.file("train.bin", tokens),
                    "data.format=tokens",
                    "data.vocab_size=8",
                    "data.block_size=16",
                    "model.n_layer=1",
                    "model.n_head=2",
                    "model.n_embd=8",
                    "model.tied_head=true"};
  const auto place = (folder_ / "run").string(), gpt2 = (folder_ / "gpt2").string(),
             converted = (folder_ / "converted").string();
  auto words = model;
  words.insert(words.end(), {"training.save_dir=" + place, "training.eval_every=1", "training.max_steps=1",
                             "snapshot.keep_best=1", "snapshot.keep_every=1"});
  const auto trained = alone(words);
  ASSERT_EQ(trained.code, 0) << trained.err;
  for (const Words& conversion : {Words{place, "to=" + gpt2, "layout=huggingface"}, Words{gpt2, "to=" + converted}}) {
    Words command{program("ddpxx"), "snapshot", "convert"};
    command.insert(command.end(), conversion.begin(), conversion.end());
    const auto ended = StartedProgram{command}.wait();
    ASSERT_EQ(ended.code, 0) << ended.err;
  }
  auto named = model;
  named.insert(named.begin(), {"generate", "snapshot=" + place, "generate.prompt=1 2"});
  for (const Words& command :
       {Words{"generate", "--from", converted, "generate.prompt=1 2"},
        Words{"generate", "--from", place, "generate.prompt=1 2"}, named, Words{"evaluate", "--from", place}}) {
    const auto ended = mingpt(command);
    EXPECT_EQ(ended.code, 0) << command[0] << ' ' << command[2] << ": " << ended.err;
    EXPECT_THAT(ended.err, testing::Not(HasSubstr("warning"))) << command[0] << ' ' << command[2];
    if (command[0] == "generate") {
      EXPECT_THAT(ended.out, testing::MatchesRegex("1 2( [0-7]){200}\n")) << command[2];
    }
  }
}

TEST_F(Mingpt, CommandsThatReadASnapshotTakeItsSettingsHoweverItIsNamed) {
  const auto place = (folder_ / "run").string();
  ASSERT_EQ(alone({"training.save_dir=" + place, "model.n_embd=24", "model.n_layer=1"}).code, 0);
  const Words from{"generate", "--from", place, "generate.tokens=9"};
  const Words setting{"generate", "snapshot=" + place, "generate.tokens=9"};
  const auto generated = mingpt(setting);
  EXPECT_EQ(generated.code, 0) << generated.err;
  EXPECT_EQ(generated.out, mingpt(from).out);
  EXPECT_EQ(mingpt({"generate", "snapshot='" + place + "'", "generate.tokens=9"}).out, generated.out);
  const auto by_variable = StartedProgram{
      {"/usr/bin/env", "OMP_NUM_THREADS=1", "MINGPT_SNAPSHOT__NAME=" + place, program("mingpt"), "generate",
       "generate.tokens=9"}}.wait();
  EXPECT_EQ(by_variable.out, generated.out) << by_variable.err;
  EXPECT_EQ(mingpt({"evaluate", "--snapshot.name=" + place}).out, mingpt({"evaluate", "--from", place}).out);
  for (const char* command : {"generate", "evaluate"})
    EXPECT_EQ(mingpt({command, "--cfg", "job"}).code, 0) << "a config is shown without a snapshot, too";
  const auto unreadable = mingpt({"evaluate", "snapshot=${oc.env:DDPXX_TEST_NONE}"});
  EXPECT_EQ(unreadable.code, 2);
  EXPECT_THAT(unreadable.err, HasSubstr("this variable is not set"));
  const auto twice = mingpt({"evaluate", "--from", place, "--from=" + place});
  EXPECT_EQ(twice.code, 2);
  EXPECT_THAT(twice.err, HasSubstr("--from is given twice"));
}

TEST_F(Mingpt, BeginsInAnotherPlaceWithTheSnapshotThatFromNames) {
  const auto place = (folder_ / "run").string(), other = (folder_ / "other").string();
  ASSERT_EQ(alone({"training.save_dir=" + place, "training.metrics=" + place + ".jsonl"}).code, 0);
  const auto before = files_in(folder_.path());
  const auto by_file = folder_.file("other.yaml", "training: {save_dir: " + other + "_by_file}\n");
  const auto elsewhere = mingpt({"--from", place, by_file, "training.max_steps=4"});
  EXPECT_EQ(elsewhere.code, 0) << elsewhere.err;
  EXPECT_THAT(elsewhere.out, HasSubstr("finished at step 4/4: 1 step "));
  for (const char* steps : {"4", "5"}) {  // the second start resumes from the snapshot that the first one saved
    const auto run =
        mingpt({"--from", place, "training.save_dir=" + other, std::string{"training.max_steps="} + steps});
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr(std::string{"finished at step "} + steps + '/' + steps + ": 1 step "));
  }
  auto after = files_in(folder_.path());
  std::erase_if(after, [&](const auto& file) { return !before.contains(file.first); });
  EXPECT_EQ(after, before) << "a new run must not use the place and the rows of the run that it begins with";
}

TEST_F(Mingpt, GoesOnInThePlaceThatFromNamesHoweverThatIsWritten) {
  const auto place = (folder_ / "run").string();
  ASSERT_EQ(alone({"training.save_dir=" + place, "training.metrics=" + place + ".jsonl"}).code, 0);
  const auto run =
      mingpt({"--from", place, "training.save_dir=" + (folder_ / "./run/").string(), "training.max_steps=4"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(StartedProgram::text_of(place + ".jsonl"), HasSubstr("\n{\"step\":4,"));
}

TEST_F(Mingpt, GoesOnInThePlaceThatAFileNamesByRecordedSettings) {
  const auto file = folder_.file("run.yaml", "training: {save_dir: '" + (folder_ / "run-${training.seed}").string() +
                                                 "', metrics: '" + (folder_ / "rows.jsonl").string() + "'}\n");
  ASSERT_EQ(alone({file, "training.seed=5"}).code, 0);
  const auto run = mingpt({"--from", (folder_ / "run-5").string(), file, "training.max_steps=4"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(StartedProgram::text_of(folder_ / "rows.jsonl"), HasSubstr("\n{\"step\":4,"));
}

TEST_F(Mingpt, CommandsThatWriteNothingCheckNoPlaceOfOutput) {
  const auto place = (folder_ / "run").string(), books = (folder_ / "books").string();
  folder_.file("books/a.txt", StartedProgram::text_of(text_));
  ASSERT_EQ(alone({"training.save_dir=" + place}).code, 0);
  for (const char* command : {"generate", "evaluate"}) {
    const auto ended = mingpt({command, "--from", place, "data.path=" + books, "training.save_dir=" + books + "/run",
                               "training.eval_samples=5", "run_folder=" + books + "/run"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ended.err, "") << command << " evaluates without training.eval_every";
  }
  EXPECT_FALSE(std::filesystem::exists(books + "/run"));
}

TEST_F(Mingpt, EvaluateSaysWhatToDoWhereNoTextIsHeldOut) {
  const auto place = (folder_ / "run").string();
  ASSERT_EQ(alone({"training.save_dir=" + place, "data.train_split=1"}).code, 0);
  const auto refused = mingpt({"evaluate", "--from", place});
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.err, HasSubstr("there is no text to evaluate on: data.train_split=1.0 leaves less than one "
                                     "sample of data.block_size=64 characters: name one by data.val_path=FILE"));
  EXPECT_EQ(mingpt({"evaluate", "--from", place, "data.val_path=" + text_}).code, 0);
}

TEST_F(Mingpt, PlansNoSweep) {
  const auto refused = mingpt({"plan", "-m", "world_size=1,2"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("a sweep (-m) trains"));
}

TEST_F(Mingpt, WarnsOfWeightsThatItDoesNotTakeBesideASnapshot) {
  const auto place = (folder_ / "run").string();
  ASSERT_EQ(alone({"training.save_dir=" + place}).code, 0);
  const auto both = alone({"snapshot=" + place, "init_from=" + place, "training.max_steps=4"});
  EXPECT_EQ(both.code, 0) << both.err;
  EXPECT_THAT(both.err, AllOf(HasSubstr("init_from=" + place + "\": warning: does nothing beside snapshot="),
                              HasSubstr("begins with step 3")));
}

TEST_F(Mingpt, EndsWith2ForAPlaceOfOutputAmongTheTexts) {
  folder_.file("books/a.txt", StartedProgram::text_of(text_));
  const auto books = (folder_ / "books").string();
  for (const char* output :
       {"training.save_dir", "training.metrics", "training.tensorboard", "training.profile", "run_folder"}) {
    const auto inside = std::string{output} + '=' + books + "/../books/run";
    const auto refused = alone({"data.path=" + books + '/', inside});
    EXPECT_EQ(refused.code, 2) << output;
    EXPECT_THAT(refused.err,
                AllOf(HasSubstr(inside + "\": lies in data.path=" + books), HasSubstr("could not resume")));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "books/run")) << output;
    EXPECT_EQ(alone({"data.path=" + books, std::string{output} + '=' + books + "-run/" + output}).code, 0) << output;
  }
  EXPECT_EQ(alone({"data.path=" + books, "data.max_bytes=5000", "training.save_dir=" + books + "/run"}).code, 0)
      << "a text that ends before the files of the run may lie beside them";
}

TEST_F(Mingpt, EndsWith4WhereTheOutputOfACommandIsLost) {
  const auto place = (folder_ / "run").string();
  const auto trained = alone({"training.save_dir=" + place, "training.max_steps=1", "model.n_layer=1", "model.n_head=2",
                              "model.n_embd=8", "data.block_size=16"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  for (const char* command : {"plan", "generate", "evaluate"}) {
    const auto ended = StartedProgram{
        {"/bin/sh", "-c", "exec \"$0\" \"$1\" --from \"$2\" >/dev/full", program("mingpt"), command,
         place}}.wait();
    EXPECT_EQ(ended.code, 4) << command;
    EXPECT_THAT(ended.err, HasSubstr("the output could not be written")) << command;
  }
  for (const char* name : {"mingpt", "ddpxx-run"})
    for (const char* option : {"--help", "--version"}) {
      const auto ended =
          StartedProgram{{"/bin/sh", "-c", "exec \"$0\" \"$1\" >/dev/full", program(name), option}}.wait();
      EXPECT_EQ(ended.code, 4) << name << ' ' << option;
      EXPECT_THAT(ended.err, HasSubstr("the output could not be written")) << name << ' ' << option;
    }
}

TEST_F(Mingpt, GoesOnWithTheSettingsOfASnapshot) {
  const auto place = (folder_ / "run").string();
  ASSERT_EQ(alone({"training.save_dir=" + place, "model.n_embd=24", "model.n_layer=1", "data.batch_size=5"}).code, 0);
  const auto more = mingpt({"--from", place, "training.max_steps=5"});
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_THAT(more.out, AllOf(HasSubstr("global batch 5"), HasSubstr("finished at step 5/5: 2 steps")));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/step-00000005/manifest.json"));
  const auto other = mingpt(
      {"train", "--from", place + ":3", "training.max_steps=4", "training.save_dir=" + (folder_ / "other").string()});
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_THAT(other.out, HasSubstr("finished at step 4/4: 1 step "));
  const auto job = (folder_ / "sweep/0").string();
  std::filesystem::create_directories(job);
  const auto of_sweep = StartedProgram{{"/usr/bin/env", "OMP_NUM_THREADS=1", "DDPXX_RUN_FOLDER=" + job,
                                        program("mingpt"), "--from", place, "training.max_steps=6"}}
                            .wait();
  EXPECT_EQ(of_sweep.code, 0) << of_sweep.err;
  EXPECT_THAT(of_sweep.out, HasSubstr("finished at step 6/6: 1 step "))
      << "a job of a sweep must start from the snapshot";
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/step-00000006"))
      << "a job must not write where the snapshot lies";
  for (const Words& no_place : {Words{"--from="}, {"--from", ""}, {"train", "--from"}}) {
    const auto refused = mingpt(no_place);
    EXPECT_EQ(refused.code, 2) << refused.out;
    EXPECT_THAT(refused.err, HasSubstr("--from needs a place: --from runs/a, runs/a:300 or runs/a:best"));
  }
  for (const Words& late : {Words{"train", "evaluate", "--from", place}, Words{"--from", place, "train", "evaluate"},
                            Words{"-m", "evaluate", "training.seed=1,2"}, Words{"train", "-m", "plan", "a=1"}}) {
    const auto refused = mingpt(late);
    EXPECT_EQ(refused.code, 2) << refused.out;
    EXPECT_THAT(refused.err, HasSubstr("is a command, which comes before all other arguments"));
  }
  const auto before = files_in(place);
  const auto evaluated = mingpt({"--from", place, "evaluate"});
  EXPECT_EQ(evaluated.code, 0) << evaluated.err;
  EXPECT_THAT(evaluated.out, HasSubstr("val_loss"));
  EXPECT_EQ(files_in(place), before) << "a command behind --from must not train";
  const auto strange = mingpt({"--from", place + "\xFF"});
  EXPECT_EQ(strange.code, 2);
  EXPECT_THAT(strange.err, HasSubstr("\\xff\": is not UTF-8; rename that folder"));
  const auto dollar = (folder_ / "${run}").string();
  std::filesystem::copy(place, dollar, std::filesystem::copy_options::recursive);
  const auto beside = mingpt({"--from", dollar, "training.max_steps=6"});
  EXPECT_EQ(beside.code, 0) << beside.err;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "${run}/step-00000006")) << beside.out;
  const auto shown = mingpt({"--from", place, "--blame", "training.seed=5"});
  EXPECT_THAT(shown.out, AllOf(HasSubstr("n_embd: 24"), HasSubstr("manifest.json:"), HasSubstr("# argument 4;")));
  const auto none = mingpt({"generate", "--from", (folder_ / "none").string()});
  EXPECT_EQ(none.code, 4);
  EXPECT_THAT(none.err, HasSubstr("there is no snapshot at"));
  const auto neither = mingpt({"evaluate", "data.path=" + text_});
  EXPECT_EQ(neither.code, 2);
  EXPECT_THAT(neither.err, HasSubstr("mingpt evaluate needs a snapshot: --from PLACE"));
  const auto nowhere = (folder_ / "none").string();
  const auto by_file = folder_.file("run.json", R"({"snapshot": {"name": ")" + nowhere + R"("}})");
  for (const Words& names_one :
       {Words{program("mingpt"), "generate", by_file, "data.path=" + text_},
        Words{"/usr/bin/env", "MINGPT_SNAPSHOT__NAME=" + nowhere, program("mingpt"), "generate", "data.path=" + text_}})
    EXPECT_THAT(StartedProgram{names_one}.wait().err, HasSubstr("there is no snapshot at"));
}

TEST_F(Mingpt, BeginsWithTheWeightsOfAFileOrASnapshot) {
  const auto place = (folder_ / "run").string();
  ASSERT_EQ(
      alone({"training.save_dir=" + place, "model.dropout=0", "optimizer.learning_rate=0.01", "training.max_steps=20"})
          .code,
      0);
  const auto python = (folder_ / "w.pt").string();
  ASSERT_EQ((StartedProgram{{program("ddpxx"), "snapshot", "convert", place, "to=" + python, "layout=state_dict"}}
                 .wait()
                 .code),
            0);
  const auto own = (folder_ / "w.safetensors").string();
  ASSERT_EQ((StartedProgram{{program("ddpxx"), "snapshot", "convert", place, "to=" + own}}.wait().code), 0);
  for (const auto& from : {place, place + ":20", python, own}) {
    const auto run = alone({"init_from=" + from, "model.dropout=0", "training.max_steps=1"});
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr("step 1/1"));
    EXPECT_LT(std::stod(value_behind(run.out, "loss")), 3.2)
        << "expected the loss of a trained model; log(33) = 3.5 is that of a random one";
  }
  const auto none = alone({"init_from=gpt2"});
  EXPECT_EQ(none.code, 4);
  EXPECT_THAT(none.err, HasSubstr("init_from=gpt2: there is no such file or folder"));
  for (const char* file : {"s3://bucket/w.pt", "s3://bucket/a/w.safetensors"}) {
    const auto in_bucket = alone({std::string{"init_from="} + file});
    EXPECT_EQ(in_bucket.code, 4);
    EXPECT_THAT(in_bucket.err, AllOf(HasSubstr(file), HasSubstr(": weights are read from a disk: copy the file")));
  }
  const auto other = alone({"init_from=" + python, "model.n_layer=1"});
  EXPECT_EQ(other.code, 4);
  EXPECT_THAT(other.err, HasSubstr("only in the file"));
}

TEST_F(Mingpt, ReadsTheTextInTheAlphabetOfTheSnapshotThatItBeginsWith) {
  const auto place = (folder_ / "run").string();
  ASSERT_EQ(alone({"training.save_dir=" + place, "training.max_steps=1"}).code, 0);
  std::string text, shifted;
  for (int i = 0; i < 300; ++i) text += "the quick box 1\n";  // fewer characters, all of them known
  const Words begins{"data.path=" + folder_.file("known", text), "init_from=" + place,
                     "training.save_dir=" + (folder_ / "tuned").string()};
  for (const char* steps : {"training.max_steps=1", "training.max_steps=2"}) {  // the second start resumes
    const auto known = alone({begins[0], begins[1], begins[2], steps});
    EXPECT_EQ(known.code, 0) << known.err;
  }
  const auto tuned = (folder_ / "tuned").string();
  const std::vector<Words> later{{"--from", tuned, begins[0], "training.max_steps=3"},
                                 {begins[0], "training.save_dir=" + tuned, "training.max_steps=4"},
                                 {begins[0], "snapshot=" + tuned, "training.max_steps=5"}};
  for (const auto& words : later) {
    const auto known = alone(words);
    EXPECT_EQ(known.code, 0) << words[0] << ' ' << words[1] << ": " << known.err;
  }
  std::ifstream original{text_};
  for (char letter; original.get(letter);) shifted += letter == 't' ? '%' : letter;  // equally many characters
  const auto other = alone({"data.path=" + folder_.file("other", shifted), "init_from=" + place});
  EXPECT_EQ(other.code, 3);
  EXPECT_THAT(other.err, HasSubstr("the character '%' does not occur in the training text"));
}

TEST_F(Mingpt, ResumesWithoutTheWeightsThatItBeganWith) {
  const auto first = (folder_ / "first").string(), run = (folder_ / "run").string();
  ASSERT_EQ(alone({"training.save_dir=" + first, "training.max_steps=2", "training.save_every=1"}).code, 0);
  // The newest snapshot is damaged: all ranks take the one before it, with a warning.
  for (const auto& entry : std::filesystem::directory_iterator{first + "/step-00000002"})
    if (entry.path().extension() == ".safetensors") {
      std::fstream file{entry.path(), std::ios::in | std::ios::out | std::ios::binary};
      const auto size = std::filesystem::file_size(entry.path());
      file.seekp(static_cast<std::streamoff>(size / 4));  // behind the header
      file << std::string(size - size / 4, 'x');
    }
  const Words begins{"init_from=" + first, "training.save_dir=" + run, "training.max_steps=1"};
  const auto begun = ranks(2, begins);
  ASSERT_EQ(begun.code, 0) << begun.err;
  EXPECT_THAT(begun.err, HasSubstr("step-00000002"));
  std::filesystem::remove_all(first);
  const auto resumed = ranks(2, {begins[0], begins[1], "training.max_steps=2"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("step 2/2"));
  EXPECT_EQ(alone({begins[0], "training.max_steps=1"}).code, 4);
}

TEST_F(Mingpt, TrainsWithEveryStrategyInEveryPrecision) {
  for (const char* strategy : {"single", "dp", "ddp", "zero1", "zero2", "fsdp", "hsdp"})
    for (const char* precision : {"bf16", "bf16_params"}) {
      Words words{std::string{"strategy="} + strategy, std::string{"precision="} + precision, "training.max_steps=1"};
      if (strategy == std::string{"dp"}) words.push_back("strategy.replicas=2");
      const auto run = alone(words);
      EXPECT_EQ(run.code, 0) << strategy << ' ' << precision << run.err;
      EXPECT_THAT(run.out, HasSubstr(std::string{", precision "} + precision + "\n"));
    }
}

TEST_F(Mingpt, EndsWith2ForAMetricsFileThatHoldsTheText) {
  const auto before = std::filesystem::file_size(text_);
  const auto run = alone({"training.metrics=" + text_});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("is not a metrics file"));
  EXPECT_EQ(std::filesystem::file_size(text_), before);
}

TEST_F(Mingpt, EndsWith4WhereALinkInThePlaceOfSnapshotsLeadsToAnotherFile) {
  const auto place = folder_ / "shared";
  const auto victim = folder_.file("victim", "important\n");
  std::filesystem::create_directory(place);
  std::filesystem::create_symlink(victim, place / ".owner");
  const auto run = alone({"training.save_dir=" + place.string()});
  EXPECT_EQ(run.code, 4);
  EXPECT_THAT(run.err, HasSubstr("refusing to write to " + (place / ".owner").string() + ": it is a symbolic link"));
  EXPECT_EQ(StartedProgram::text_of(victim), "important\n");
}

TEST_F(Mingpt, PrintsNoEscapeSequenceThatAnArgumentOrATextHolds) {
  const auto absent = alone({"data.path=/no/\x1b]0;owned\a", "training.save_dir=/proc/\x1b[2J"});
  EXPECT_EQ(absent.code, 3);
  EXPECT_THAT(absent.err, HasSubstr(R"(/no/\x1b]0;owned\x07: No such file)"));
  EXPECT_EQ((absent.out + absent.err).find('\x1b'), std::string::npos);

  std::string escapes;
  for (int i = 0; i < 1000; ++i) escapes += i % 3 == 0 ? "\x1b[1m" : "a";
  const auto place = (folder_ / "run").string();
  const auto trained = alone({"data.path=" + folder_.file("escapes", escapes), "training.save_dir=" + place,
                              "generate.tokens=20", "model.n_layer=1", "model.n_head=2", "model.n_embd=8"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("--- generated text ---\n\\x1b"));
  EXPECT_EQ((trained.out + trained.err).find('\x1b'), std::string::npos);

  const Terminal terminal;
  const auto generate = [&](const std::string& target) {
    return StartedProgram{
        {"/bin/sh", "-c", "exec \"$0\" generate --from \"$1\" generate.tokens=5 >" + target, program("mingpt"), place}}
        .wait();
  };
  EXPECT_EQ(generate(terminal.name()).code, 0);
  const auto shown = terminal.read_until("\n");
  EXPECT_THAT(shown, testing::StartsWith("\\x1b"));
  EXPECT_EQ(shown.find('\x1b'), std::string::npos);
  EXPECT_THAT(generate("&1").out, testing::StartsWith("\x1b")) << "text for a pipe must not be escaped";
}

TEST_F(Mingpt, EndsWith4ForADamagedSnapshotAndKeepsIt) {
  const auto save = folder_ / "save";
  EXPECT_EQ(alone({"training.save_dir=" + save.string()}).code, 0);
  const auto folder = save / "step-00000003";
  std::filesystem::path path;
  for (const auto& entry : std::filesystem::directory_iterator{folder})
    if (entry.path().extension() == ".safetensors") path = entry.path();
  std::fstream{path, std::ios::in | std::ios::out | std::ios::binary}.seekp(5000).put('x').put('y');
  const auto before = StartedProgram::text_of(path);
  const auto run = alone({"training.save_dir=" + save.string(), "training.max_steps=5"});
  EXPECT_EQ(run.code, 4);
  EXPECT_THAT(run.err, AllOf(HasSubstr(path.filename().string() + " is damaged between its bytes"),
                             HasSubstr("1 snapshots found"), HasSubstr("a fresh start needs another save_dir")));
  EXPECT_EQ(StartedProgram::text_of(path), before);
  EXPECT_TRUE(std::filesystem::exists(folder / "manifest.json"));
}

TEST_F(Mingpt, EvaluatesAndGeneratesWithTheSnapshotBeforeADamagedOneAndSaysSo) {
  const auto place = (folder_ / "run").string();
  ASSERT_EQ(ranks(2, {"training.save_dir=" + place, "training.save_every=1", "snapshot.keep_last=0"}).code, 0);
  const auto before = mingpt({"evaluate", "--from", place + ":2"});
  const auto text_before = mingpt({"generate", "--from", place + ":2", "generate.tokens=20"});

  const FailingCalls bad_sector{
      .path = place + "/step-00000003/rank-1", .last = 1'000'000, .error = EIO, .calls = "pread"};
  const auto generated = StartedProgram{
      {"/usr/bin/env", "OMP_NUM_THREADS=1", failing_calls_variable(bad_sector),
       "LD_PRELOAD=" DDPXX_FAILING_CALLS_LIBRARY, program("mingpt"), "generate", "--from", place,
       "generate.tokens=20"}}.wait();
  EXPECT_EQ(generated.code, 0) << generated.err;
  EXPECT_THAT(generated.err, AllOf(HasSubstr("warning: cannot read " + bad_sector.path),
                                   HasSubstr("(errno 5); the snapshot before it is taken")));
  EXPECT_EQ(generated.out, text_before.out);

  std::filesystem::resize_file(place + "/step-00000003/manifest.json", 100);
  const auto run = StartedProgram{
      {program("ddpxx-run"), "--standalone", "--nproc-per-node", "2", program("mingpt"), "evaluate", "--from",
       place}}.wait();
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NEAR(std::stod(value_behind(run.out, "val_loss")), std::stod(value_behind(before.out, "val_loss")), 1e-6);
  const std::string warning = "step-00000003/manifest.json is not usable";
  EXPECT_THAT(run.err, HasSubstr(warning));
  EXPECT_EQ(run.err.find(warning), run.err.rfind(warning)) << "only the rank that chooses the snapshot must warn";
}

TEST_F(Mingpt, EndsWith5ForIncompleteLaunchVariablesAndNamesThem) {
  const auto run = alone({}, {"RANK=0", "WORLD_SIZE=2"});
  EXPECT_EQ(run.code, 5);
  EXPECT_THAT(run.err, HasSubstr("the launch environment is incomplete: MASTER_ADDR, MASTER_PORT not set"));
  const auto no_rank = alone({}, {"WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29511"});
  EXPECT_EQ(no_rank.code, 5);
  EXPECT_THAT(no_rank.err, HasSubstr("the launch environment is incomplete: RANK not set"));
}

/// A port of the loopback interface that this test occupies.
class OccupiedPort {
 public:
  OccupiedPort() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    ::bind(socket_, reinterpret_cast<sockaddr*>(&address), length);
    ::listen(socket_, 1);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
  }
  OccupiedPort(const OccupiedPort&) = delete;
  OccupiedPort& operator=(const OccupiedPort&) = delete;
  ~OccupiedPort() { ::close(socket_); }
  std::string number() const { return std::to_string(port_); }

 private:
  int socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
  int port_ = 0;
};

TEST_F(Mingpt, EndsWith5ForAPortInUse) {
  const OccupiedPort port;
  const auto run = alone({}, {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port.number()});
  EXPECT_EQ(run.code, 5);
  EXPECT_THAT(run.err, HasSubstr("port in use: tcp://127.0.0.1:" + port.number()));
}

TEST_F(Mingpt, EndsWith5WhenARankNeverComesAndNamesIt) {
  const auto port = std::to_string(unused_port());
  const auto run =
      alone({"comm.join_timeout=2"}, {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port});
  EXPECT_EQ(run.code, 5);
  EXPECT_THAT(run.err, HasSubstr("rank 1 never came to tcp://127.0.0.1:" + port + " within 2 s"));
}

// Python's launcher keeps its store over a restart; the restarted ranks must still be able to meet.
TEST_F(Mingpt, RunsUnderPythonsTorchrunAndSurvivesItsRestart) {
  std::string line = program("mingpt");
  for (const auto& word : settings()) line += " '" + word + "'";
  const auto run = StartedProgram{
      {python(), "-m", "torch.distributed.run", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0",
       "--local-addr=127.0.0.1", "--nproc-per-node", "2", "--max-restarts", "1", "--no-python", "/bin/sh", "-c",
       line + " && [ $TORCHELASTIC_RESTART_COUNT = 1 ] && touch " + (folder_ / "done.").string() +
           "$RANK"}}.wait();
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "done.0") && std::filesystem::exists(folder_ / "done.1")) << run.err;
}

TEST_F(Mingpt, ARankThatIsKilledInMidStepEndsAllWithinSecondsAndOneReport) {
  const auto metrics = folder_ / "metrics.jsonl";
  std::string line = "echo $$ >" + (folder_ / "pid.").string() + "$RANK; exec " + program("mingpt");
  for (const auto& word : settings({"training.max_steps=1000000", "training.metrics=" + metrics.string()}))
    line += " '" + word + "'";
  StartedProgram run{{program("ddpxx-run"), "--standalone", "--nproc-per-node", "3", "/bin/sh", "-c", line}};
  run.wait_for_lines(metrics, 20);
  const auto killed = std::chrono::steady_clock::now();
  ::kill(std::stoi(StartedProgram::text_of(folder_ / "pid.1")), SIGKILL);
  const auto ended = run.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds{30});
  EXPECT_EQ(ended.code, 128 + SIGKILL);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("Signal 9 (SIGKILL)"), HasSubstr("rank      : 1 (local_rank: 1)")));
  EXPECT_THAT(ended.err, testing::ContainsRegex("  last step : [1-9][0-9]*\n  collective: [a-z_]+ of [0-9]+ bytes"));
  const std::regex root{"Root [Cc]ause"};
  EXPECT_EQ(std::distance(std::sregex_iterator{ended.err.begin(), ended.err.end(), root}, {}), 1) << ended.err;
}

}  // namespace
}  // namespace mingpt_test
