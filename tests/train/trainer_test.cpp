#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <unistd.h>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/optim/lamb.hpp>
#include <ddpxx/optim/lion.hpp>
#include <ddpxx/optim/sgd.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../terminal.hpp"

namespace ddpxx::trainer_test {
namespace {

namespace fs = std::filesystem;

/// Sample i is a short run of tokens that depends only on i.
struct Tokens {
  std::int64_t samples = 37;
  std::int64_t size() const { return samples; }
  Batch batch(std::span<const std::int64_t> indices) const {
    auto start = at::tensor(std::vector<std::int64_t>{indices.begin(), indices.end()}, at::kLong).unsqueeze(1);
    const auto ids = (start * 7 + at::arange(9, at::kLong) * (start % 3 + 1)) % 11;
    return {ids.narrow(1, 0, 8), ids.narrow(1, 1, 8), ids.size(0) * 8};
  }
};

std::shared_ptr<GPT> tiny_gpt(double dropout = 0.0) {
  at::manual_seed(3);
  return std::make_shared<GPT>(GPTConfig{.n_layer = 2, .n_head = 2, .n_embd = 16, .dropout = dropout}, 11, 8);
}

template <class Strategy>
using Train = Trainer<GPT, Tokens, AdamW, Float32, Strategy>;

class Run : public testing::Test {
 protected:
  Run() { fs::create_directories(folder); }
  ~Run() override { fs::remove_all(folder); }

  template <class Strategy = DDP>
  typename Train<Strategy>::Config config(std::int64_t max_steps) const {
    typename Train<Strategy>::Config config;
    config.batch_size = 4;
    config.training = {.max_steps = max_steps, .seed = 5, .metrics = (folder / "metrics.jsonl").string()};
    config.optimizer.learning_rate = 1e-2;
    // A smaller epsilon would turn the rounding in the key bias's gradient into full steps.
    config.optimizer.epsilon = 1e-4;
    return config;
  }

  std::vector<nlohmann::json> rows() const {
    std::vector<nlohmann::json> rows;
    std::ifstream file{folder / "metrics.jsonl"};
    for (std::string line; std::getline(file, line);) rows.push_back(nlohmann::json::parse(line));
    return rows;
  }
  std::vector<double> losses() const {
    std::vector<double> losses;
    for (const auto& row : rows())
      if (row.contains("loss")) losses.push_back(row["loss"]);
    return losses;
  }

  fs::path folder = fs::temp_directory_path() / ("ddpxx_trainer_test_" + std::to_string(::getpid()));
};

TEST_F(Run, LossFallsAndEveryStepHasItsRow) {
  Group alone;
  auto settings = config<SingleDevice>(30);
  settings.training.max_epochs = 0;
  Train<SingleDevice>{alone, tiny_gpt(), std::make_shared<Tokens>(), settings}.fit();
  const auto all = rows();
  ASSERT_EQ(all.size(), 30u);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i]["step"], i + 1);
  EXPECT_LT(all.back()["loss"], 0.7 * all.front()["loss"].get<double>());
  for (const char* key :
       {"epoch", "grad_norm", "lr", "tokens_per_second", "step_ms", "peak_memory_bytes", "state_bytes"})
    EXPECT_TRUE(all[7].contains(key)) << key;
  EXPECT_EQ(all.back()["epoch"], 2) << "an epoch of 37 samples has 10 steps of 4";
}

TEST_F(Run, StateBytesCountParametersGradientsAndMoments) {
  Group alone;
  auto model = tiny_gpt();
  Train<SingleDevice> trainer{alone, model, std::make_shared<Tokens>(), config<SingleDevice>(1)};
  trainer.fit();
  EXPECT_EQ(rows().at(0)["state_bytes"], 4 * 4 * trainer.strategy().trainable().numel());
}

TEST_F(Run, WorldOfTwoEqualsOneProcessWithTheSameGlobalBatch) {
  auto one = config<SingleDevice>(12);
  one.batch_size = 8;
  Group alone;
  const auto even = std::make_shared<Tokens>(Tokens{40});  // with an odd number, two ranks would pad the data
  Train<SingleDevice>{alone, tiny_gpt(), even, one}.fit();
  const auto expected = losses();
  spawn_ranks(2, [&](Group& group) { Train<DDP>{group, tiny_gpt(), even, config(12)}.fit(); });
  const auto got = losses();
  ASSERT_EQ(got.size(), 12u);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5 * expected[i]) << "step " << i + 1;
}

TEST_F(Run, AccumulationEqualsOneLargeBatch) {
  auto large = config<SingleDevice>(4), small = large;
  large.batch_size = 8;
  small.training.accumulation_steps = 2;
  Group alone;
  Train<SingleDevice>{alone, tiny_gpt(), std::make_shared<Tokens>(), large}.fit();
  const auto expected = losses();
  Train<SingleDevice>{alone, tiny_gpt(), std::make_shared<Tokens>(), small}.fit();
  const auto got = losses();
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5 * expected[i]);
}

TEST_F(Run, RowsCountSamplesAndTokensThroughAResume) {
  Group alone;
  auto settings = config<SingleDevice>(3);
  settings.training.save_dir = (folder / "save").string();
  Train<SingleDevice>{alone, tiny_gpt(), std::make_shared<Tokens>(), settings}.fit();
  settings.training.max_steps = 12;
  Train<SingleDevice>{alone, tiny_gpt(), std::make_shared<Tokens>(), settings}.fit();
  std::vector<nlohmann::json> steps;
  for (const auto& row : rows())
    if (row.contains("loss")) steps.push_back(row);
  ASSERT_EQ(steps.size(), 12u);
  EXPECT_EQ(steps[1]["samples"], 8);
  EXPECT_EQ(steps[1]["tokens"], 64);
  EXPECT_EQ(steps[3]["samples"], 16) << "the count must continue after the resume";
  EXPECT_EQ(steps[3]["tokens"], 128);
  EXPECT_EQ(steps[11]["samples"], 45) << "expected an epoch of 37 samples and two steps of 4";
  EXPECT_EQ(steps[11]["tokens"], 45 * 8);
}

TEST_F(Run, KeepsTheRowsOfStepsThatWereDoneBeforeFit) {
  Group alone;
  Train<SingleDevice> trainer{alone, tiny_gpt(), std::make_shared<Tokens>(), config<SingleDevice>(6)};
  for (int i = 0; i < 4; ++i) trainer.step();
  trainer.fit();
  const auto all = rows();
  ASSERT_EQ(all.size(), 6u);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i]["step"], i + 1);
}

/// The output of the ranks while `body` runs.
struct Printed {
  std::string out, err;
};
Printed printed_by(const std::function<void()>& body) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  body();
  const auto out = testing::internal::GetCapturedStdout();
  return {out, testing::internal::GetCapturedStderr()};
}

TEST_F(Run, KnowsWhereItEndsAfterAChangeOfWorldAndBatch) {
  const auto data = std::make_shared<Tokens>(Tokens{40});
  const auto run = [&](int world_size, std::int64_t batch_size, std::int64_t max_epochs) {
    return printed_by([&] {
      spawn_ranks(world_size, [&](Group& group) {
        auto settings = config(0);
        settings.batch_size = batch_size;
        settings.training.max_epochs = max_epochs;
        settings.training.save_dir = (folder / "save").string();
        Train<DDP>{group, tiny_gpt(), data, settings}.fit();
      });
    });
  };
  EXPECT_NE(run(1, 4, 1).out.find("finished at step 10/10: 10 steps in"), std::string::npos);
  const auto two = run(2, 4, 2);  // 5 steps are an epoch
  EXPECT_NE(two.out.find("step 11/15"), std::string::npos) << two.out;
  EXPECT_NE(two.out.find("finished at step 15/15: 5 steps in"), std::string::npos) << two.out;
  EXPECT_NE(two.err.find("warning: resumed with a changed setting: global batch 4 -> 8\n"), std::string::npos)
      << two.err;
  const auto one = run(1, 8, 3);  // the global batch is unchanged
  EXPECT_NE(one.out.find("finished at step 20/20"), std::string::npos) << one.out;
  EXPECT_EQ(one.err.find("global batch"), std::string::npos) << one.err;
}

TEST_F(Run, BeginsWithAHeadAndEndsWithWhatWasReached) {
  const auto said = printed_by([&] {
    Group alone;
    auto settings = config<SingleDevice>(3);
    settings.training.accumulation_steps = 2;
    settings.training.eval_every = 1;
    settings.training.save_dir = (folder / "save").string();
    Train<SingleDevice>{
        alone,    tiny_gpt(), std::make_shared<Tokens>(),
        settings, {},         {.validation = std::make_shared<Tokens>(Tokens{10}), .precision_name = "fp32"}}
        .fit();
  });
  EXPECT_EQ(said.out.find("model with 7.07k parameters, strategy SingleDevice, 1 rank on cpu, precision fp32\n"
                          "global batch 8 (1 rank x 4 x 2 accumulated), 37 samples, 5 steps an epoch\n"
                          "seed 5, snapshots in "),
            0u)
      << said.out;
  EXPECT_NE(said.out.find("\nfinished at step 3/3: 3 steps in 0s, best val_loss "), std::string::npos) << said.out;
  EXPECT_TRUE(said.out.ends_with(" at step 3; last snapshot in " + (folder / "save/step-00000003/").string() + "\n"))
      << said.out;
}

/// Redirects standard output to a terminal during its life.
class OutputToTerminal {
 public:
  explicit OutputToTerminal(const Terminal& terminal) { turn_to(terminal.descriptor()); }
  OutputToTerminal(const OutputToTerminal&) = delete;
  OutputToTerminal& operator=(const OutputToTerminal&) = delete;
  ~OutputToTerminal() { turn_to(before_.get()); }

 private:
  static void turn_to(int descriptor) {
    std::cout << std::flush;
    ::dup2(descriptor, STDOUT_FILENO);
  }

  Descriptor before_{::dup(STDOUT_FILENO)};
};

TEST_F(Run, ALongEvaluationSaysHowFarItIs) {
  struct Slow : Tokens {
    Batch batch(std::span<const std::int64_t> indices) const {
      // Takes longer than the terminal's line may stay unchanged.
      if (samples == 12) std::this_thread::sleep_for(std::chrono::milliseconds{110});
      return Tokens::batch(indices);
    }
  };
  const Terminal terminal{200};
  {
    const OutputToTerminal output{terminal};
    Group alone;
    Trainer<GPT, Slow, AdamW, Float32, SingleDevice>::Config settings;
    settings.batch_size = 4;
    settings.training = {.max_steps = 1, .eval_every = 1};
    auto data = std::make_shared<Slow>(), validation = std::make_shared<Slow>();
    validation->samples = 12;
    Trainer<GPT, Slow, AdamW, Float32, SingleDevice>{alone, tiny_gpt(), data, settings, {}, {.validation = validation}}
        .fit();
  }
  const auto drawn = terminal.read_until("nothing saved\r\n");
  for (const char* line : {"\rstep 1  evaluating 4/12", "\rstep 1  evaluating 8/12", "\rstep 1  evaluating 12/12"})
    EXPECT_NE(drawn.find(line), std::string::npos) << line << " is not in\n" << drawn;
}

class Resume_ : public Run, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, Resume_, testing::Values(1, 2, 4));

TEST_P(Resume_, TrainStopResumeEqualsTrainBitForBitWithDropout) {
  const auto run = [&](std::int64_t max_steps, const fs::path& save_dir) {
    spawn_ranks(GetParam(), [&](Group& group) {
      auto settings = config(max_steps);
      settings.batch_size = 3;
      settings.training.save_dir = save_dir.string();
      Train<DDP>{group, tiny_gpt(0.2), std::make_shared<Tokens>(), settings}.fit();
    });
  };
  run(11, folder / "whole");
  run(7, folder / "parts");  // each stop is in the middle of an epoch, for every world size
  run(11, folder / "parts");
  const auto whole = load_snapshot(folder / "whole"), parts = load_snapshot(folder / "parts");
  ASSERT_TRUE(whole && parts);
  EXPECT_EQ(parts->run.step, 11);
  EXPECT_EQ(whole->run.position, parts->run.position);
  ASSERT_EQ(whole->tensors.size(), parts->tensors.size());
  for (const auto& [name, tensor] : whole->tensors) EXPECT_TRUE(at::equal(tensor, parts->tensors.at(name))) << name;
  EXPECT_EQ(losses().size(), 11u) << "the resumed run appends to the metrics";
}

TEST_F(Run, ResumesAtAnotherWorldSizeAndSeesEverySampleOnce) {
  struct Logged : Tokens {
    fs::path log;
    Batch batch(std::span<const std::int64_t> indices) const {
      std::ofstream out{log, std::ios::app};
      for (const auto index : indices) out << (std::to_string(index) + "\n");
      return Tokens::batch(indices);
    }
  };
  const auto data = std::make_shared<Logged>();
  data->samples = 40;
  data->log = folder / "samples";
  const auto run = [&](int world_size, std::int64_t max_steps) {
    spawn_ranks(world_size, [&](Group& group) {
      Trainer<GPT, Logged, AdamW, Float32, DDP>::Config settings;
      settings.batch_size = 4;
      settings.training = {.max_steps = max_steps, .max_epochs = 1, .save_dir = (folder / "save").string()};
      Trainer<GPT, Logged, AdamW, Float32, DDP>{group, tiny_gpt(), data, settings}.fit();
    });
  };
  run(4, 1);  // 16 samples
  run(2, 0);  // the other 24 samples
  std::ifstream seen{data->log};
  std::multiset<std::int64_t> samples{std::istream_iterator<std::int64_t>{seen}, {}};
  EXPECT_EQ(samples.size(), 40u);
  EXPECT_EQ(std::set<std::int64_t>(samples.begin(), samples.end()).size(), 40u);
}

TEST_F(Run, EvaluationCoversEverySampleOnceAtEveryWorldSize) {
  std::vector<double> values;
  for (const int world_size : {1, 2, 3}) {
    spawn_ranks(world_size, [&](Group& group) {
      auto settings = config(1);
      settings.optimizer.learning_rate = 1e-30;
      settings.training.eval_every = 1;
      Train<DDP>{group,
                 tiny_gpt(0.5),
                 std::make_shared<Tokens>(),
                 settings,
                 {},
                 {.validation = std::make_shared<Tokens>(Tokens{10})}}
          .fit();
    });
    const auto row = rows().back();
    EXPECT_EQ(row["samples"], 10);
    EXPECT_FALSE(row.contains("loss"));
    values.push_back(row["val_loss"]);
  }
  EXPECT_NEAR(values[1], values[0], 1e-6 * values[0]);
  EXPECT_NEAR(values[2], values[0], 1e-6 * values[0]);
}

std::string error_of(Errc code, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

TEST_F(Run, RefusesADatasetSmallerThanTheWorld) {
  const auto text = error_of(Errc::data, [&] {
    spawn_ranks(3, [&](Group& group) {
      Train<DDP>{group, tiny_gpt(), std::make_shared<Tokens>(Tokens{2}), config(1)};
    });
  });
  EXPECT_NE(text.find("the training set has 2 samples for 3 ranks"), std::string::npos) << text;
}

TEST_F(Run, RefusesADatasetThatIsEmptyOrHasANegativeSize) {
  const auto refusal = [&](std::int64_t samples) {
    return error_of(Errc::data, [&] {
      spawn_ranks(2, [&](Group& group) {
        Train<DDP>{group, tiny_gpt(), std::make_shared<Tokens>(Tokens{samples}), config(1)};
      });
    });
  };
  EXPECT_THAT(refusal(0), testing::HasSubstr("the training set is empty: its size() returned 0"));
  EXPECT_THAT(refusal(-1), testing::HasSubstr("the size() of the training set returned -1"));
}

TEST_F(Run, RefusesASnapshotOfAnotherModelAndListsTheDifferences) {
  const auto run = [&](const GPTConfig& model) {
    spawn_ranks(2, [&](Group& group) {
      auto settings = config(1);
      settings.training.save_dir = folder.string();
      Train<DDP>{group, std::make_shared<GPT>(model, 11, 8), std::make_shared<Tokens>(), settings}.fit();
    });
  };
  run({.n_layer = 1, .n_head = 2, .n_embd = 16});
  const auto text = error_of(Errc::storage, [&] { run({.n_layer = 2, .n_head = 2, .n_embd = 8}); });
  EXPECT_NE(text.find("rank 1: the snapshot is of another model or optimizer:"), std::string::npos) << text;
  EXPECT_NE(text.find("model.transformer.wte.weight: [11, 16] in the snapshot, [11, 8] in the model"),
            std::string::npos);
  EXPECT_NE(text.find("model.transformer.h.1.ln_1.weight: missing in the snapshot"), std::string::npos);
}

TEST_F(Run, SaysWhatToDoWithASnapshotOfARunThatTrainedOtherParameters) {
  auto settings = config<SingleDevice>(1);
  settings.training.save_dir = folder.string();
  Group alone;
  const auto run = [&](bool trains_tokens) {
    auto model = tiny_gpt();
    model->named_parameters()["transformer.wte.weight"].set_requires_grad(trains_tokens);
    Train<SingleDevice>{alone, model, std::make_shared<Tokens>(), settings}.fit();
  };
  for (const bool trained : {true, false}) {
    std::filesystem::remove_all(folder);
    run(trained);
    EXPECT_THAT(error_of(Errc::storage, [&] { run(!trained); }),
                testing::AllOf(testing::HasSubstr(trained ? "optimizer.exp_avg.transformer.wte.weight: only in the snap"
                                                          : "optimizer.exp_avg.transformer.wte.weight: missing in the"),
                               testing::HasSubstr("with a model into which load_model() has read the snapshot")));
  }
}

TEST_F(Run, RefusesASnapshotOfAnotherOptimizerWhoseStateHasTheSameNames) {
  auto settings = config<SingleDevice>(1);
  settings.training.save_dir = folder.string();
  Group alone;
  Train<SingleDevice>{alone, tiny_gpt(), std::make_shared<Tokens>(), settings}.fit();
  const auto text = error_of(Errc::storage, [&] {
    using Other = Trainer<GPT, Tokens, Adam, Float32, SingleDevice>;
    Other::Config others{.training = settings.training};
    others.training.max_steps = 2;
    Other{alone, tiny_gpt(), std::make_shared<Tokens>(), others}.fit();
  });
  EXPECT_EQ(text,
            "the snapshot is of another model or optimizer:\n  the optimizer: AdamW in the snapshot, Adam now\n"
            "choose the configuration it was saved with, or another snapshot or save_dir");
}

TEST_F(Run, RefusesASnapshotOfAnOptimizerThatTorchOptimDoesNotHave) {
  auto settings = config<SingleDevice>(1);
  settings.training.save_dir = folder.string();
  Group alone;
  using Own = Trainer<GPT, Tokens, LAMB, Float32, SingleDevice>;
  Own{alone, tiny_gpt(), std::make_shared<Tokens>(), Own::Config{.training = settings.training}}.fit();
  settings.training.max_steps = 2;
  EXPECT_THAT(error_of(Errc::storage,
                       [&] {
                         Train<SingleDevice>{alone, tiny_gpt(), std::make_shared<Tokens>(), settings}.fit();
                       }),
              testing::HasSubstr("the optimizer: LAMB in the snapshot, AdamW now"));
  using Other = Trainer<GPT, Tokens, Lion, Float32, SingleDevice>;
  EXPECT_THAT(
      error_of(
          Errc::storage,
          [&] {
            Other{alone, tiny_gpt(), std::make_shared<Tokens>(), Other::Config{.training = settings.training}}.fit();
          }),
      testing::AllOf(testing::HasSubstr("LAMB in the snapshot, Lion now"),
                     testing::Not(testing::HasSubstr("trained other parameters"))));
}

TEST_F(Run, GoesOnWithAnotherPrecisionAndAnAverageThatTheSnapshotDoesNotHave) {
  const auto run = [&]<class Precision>(const Precision*, std::int64_t max_steps, double ema_decay) {
    using Own = Trainer<GPT, Tokens, AdamW, Precision, SingleDevice>;
    typename Own::Config settings;
    settings.training = config<SingleDevice>(max_steps).training;
    settings.training.ema_decay = ema_decay;
    if constexpr (std::is_same_v<Precision, AutocastFP16>)
      settings.precision.scaler.initial_scale = 8;  // no step overflows
    settings.training.save_dir = folder.string();
    Group alone;
    Own{alone, tiny_gpt(), std::make_shared<Tokens>(), settings}.fit();
    return load_snapshot(folder).value();
  };
  const AutocastFP16* const half = nullptr;
  const Float32* const single = nullptr;
  const auto scaled = run(half, 2, 0.0);
  EXPECT_TRUE(scaled.tensors.contains("scaler.scale"));
  const auto averaged = run(single, 3, 0.9);
  EXPECT_EQ(averaged.run.step, 3);
  EXPECT_FALSE(averaged.tensors.contains("scaler.scale"));
  const std::string name = "transformer.wte.weight";
  EXPECT_TRUE(at::equal(averaged.tensors.at("optimizer.ema." + name), averaged.tensors.at("model." + name)))
      << "the average begins with the values of its first step";
  const auto scaled_again = run(half, 4, 0.0);
  EXPECT_EQ(scaled_again.run.step, 4);
  EXPECT_FALSE(scaled_again.tensors.contains("optimizer.ema." + name));
  EXPECT_EQ(scaled_again.tensors.at("scaler.growth_tracker").item<int>(), 1) << "the scale began anew";
}

TEST_F(Run, ComparesSettingsWithTheSnapshotByTheirPolicy) {
  const auto run = [&](Settings recorded) {
    Group alone;
    auto settings = config<SingleDevice>(1);
    settings.training.save_dir = folder.string();
    Train<SingleDevice>{alone, tiny_gpt(), std::make_shared<Tokens>(), settings, {.settings = std::move(recorded)}}
        .fit();
  };
  run({{"training.seed", "5", Resume::must_match}, {"data.batch_size", "4", Resume::free}});
  run({{"training.seed", "5", Resume::must_match}, {"data.batch_size", "9", Resume::free}});
  const auto text = error_of(Errc::storage, [&] { run({{"training.seed", "6", Resume::must_match}}); });
  EXPECT_NE(text.find("training.seed: 5 in the snapshot, 6 now"), std::string::npos) << text;
}

TEST_F(Run, SnapshotsKeepTheArgumentsAndAHashOfTheSettings) {
  Group alone;
  auto settings = config<SingleDevice>(1);
  settings.training.save_dir = folder.string();
  const ConfigRecord record{.settings = {{"training.seed", "5", Resume::must_match}},
                            .overrides = "- \"training.seed=5\"\n"};
  Train<SingleDevice>{alone, tiny_gpt(), std::make_shared<Tokens>(), settings, record}.fit();
  const auto snapshot = load_snapshot(folder).value();
  EXPECT_EQ(snapshot.run.overrides, record.overrides);
  EXPECT_EQ(snapshot.run.config_hash, config_hash(record.settings));
  EXPECT_EQ(snapshot.run.optimizer, "AdamW");
}

TEST_F(Run, RefusesRanksThatWereStartedToDoDifferentThings) {
  const auto text = error_of(Errc::peer, [&] {
    spawn_ranks(2, [&](Group& group) {
      auto settings = config(3 + group.rank());
      const ConfigRecord record{.settings = {{"model.dropout", group.rank() == 0 ? "0.1" : "0.2", Resume::must_match}}};
      Train<DDP>{group, tiny_gpt(), std::make_shared<Tokens>(Tokens{30 + group.rank()}), settings, record}.fit();
    });
  });
  for (const char* line : {"max_steps: 3 on rank 0, 4 on rank 1", "model.dropout: 0.1 on rank 0, 0.2 on rank 1",
                           "the number of training samples: 30 on rank 0, 31 on rank 1"})
    EXPECT_NE(text.find(line), std::string::npos) << text;
}

TEST_F(Run, RefusesToResumeOnADatasetOfAnotherSize) {
  const auto run = [&](std::int64_t samples, std::int64_t max_steps) {
    Group alone;
    auto settings = config<SingleDevice>(max_steps);
    settings.training.save_dir = folder.string();
    Train<SingleDevice>{alone, tiny_gpt(), std::make_shared<Tokens>(Tokens{samples}), settings}.fit();
  };
  run(37, 7);
  const auto text = error_of(Errc::storage, [&] { run(20, 9); });
  EXPECT_NE(text.find("the number of training samples: 37 in the snapshot, 20 now"), std::string::npos) << text;
}

TEST_F(Run, FindsOutAtOnceThatSnapshotsCannotBeWritten) {
  const auto text = error_of(Errc::storage, [&] {
    spawn_ranks(2, [&](Group& group) {
      auto settings = config(1);
      settings.training.save_dir = "/proc/no_such_place";
      Train<DDP> trainer{group, tiny_gpt(), std::make_shared<Tokens>(), settings};
      try {
        trainer.fit();
      } catch (const Error&) {
        EXPECT_EQ(trainer.steps_done(), 0);
        throw;
      }
    });
  });
  EXPECT_NE(text.find("rank 1: no snapshot can be written to /proc/no_such_place: choose another"), std::string::npos);
}

TEST_F(Run, GoesOnWithFreshRandomNumbersWhereTheOldOnesDoNotFit) {
  Group alone;
  auto settings = config<SingleDevice>(2);
  settings.training.save_dir = folder.string();
  Train<SingleDevice>{alone, tiny_gpt(), std::make_shared<Tokens>(), settings}.fit();
  auto snapshot = load_snapshot(folder).value();
  snapshot.tensors["random.0"] = at::zeros({16}, at::kByte);  // the state of a GPU's generator
  save_snapshot(folder / "other", snapshot);
  settings.training.save_dir = (folder / "other").string();
  settings.training.max_steps = 3;
  Train<SingleDevice> trainer{alone, tiny_gpt(), std::make_shared<Tokens>(), settings};
  trainer.fit();
  EXPECT_EQ(trainer.steps_done(), 3);
}

TEST_F(Run, KeepsTheRandomNumbersOfTheHostBesideThoseOfAGPU) {
  const at::Device gpu{at::kCUDA, 1};
  EXPECT_THAT(random_generators(3, gpu), testing::ElementsAre(testing::Pair("random.3", gpu),
                                                              testing::Pair("random.3.cpu", at::Device{at::kCPU})));
  EXPECT_THAT(random_generators(3, at::kCPU), testing::ElementsAre(testing::Pair("random.3", at::Device{at::kCPU})));
}

TEST_F(Run, RefusesABufferThatNoSnapshotCanHoldBeforeTheFirstStep) {
  struct Rotated : GPT {
    using GPT::GPT;
    at::Tensor angles = register_buffer("angles", at::zeros({2}, at::kComplexDouble));
  };
  const auto train = [&](const std::string& save_dir) {
    Group alone;
    auto settings = config(1);
    settings.training.save_dir = save_dir;
    Trainer<Rotated, Tokens, AdamW, Float32, SingleDevice>{
        alone,
        std::make_shared<Rotated>(GPTConfig{.n_layer = 1, .n_head = 2, .n_embd = 16, .dropout = 0.0}, 11, 8),
        std::make_shared<Tokens>(),
        {.batch_size = 3, .training = settings.training}}
        .fit();
  };
  const auto text = error_of(Errc::config, [&] { train((folder / "rotated").string()); });
  EXPECT_THAT(text, testing::HasSubstr("model.angles has the type ComplexDouble, which a snapshot cannot hold"));
  train("");
}

/// A conjugated view is a tensor whose memory has other numbers than the tensor.
TEST_F(Run, KeepsComplexBuffersInSnapshots) {
  struct Rotated : GPT {
    explicit Rotated(const at::Tensor& first)
        : GPT{{.n_layer = 1, .n_head = 2, .n_embd = 16, .dropout = 0.0}, 11, 8},
          angles{register_buffer("angles", first)} {}
    at::Tensor angles;
  };
  const auto angles = at::complex(at::arange(3, at::kFloat), at::arange(3, at::kFloat) + 1);
  const auto trained = [&](const at::Tensor& first, std::int64_t steps) {
    Group alone;
    auto settings = config(steps);
    settings.training.save_dir = (folder / "rotated").string();
    const auto model = std::make_shared<Rotated>(first);
    Trainer<Rotated, Tokens, AdamW, Float32, SingleDevice>{
        alone, model, std::make_shared<Tokens>(), {.batch_size = 3, .training = settings.training}}
        .fit();
    return model->angles;
  };
  EXPECT_TRUE(at::equal(trained(angles.conj(), 1), angles.conj()));
  EXPECT_TRUE(at::equal(trained(at::zeros_like(angles), 2), angles.conj()));
}

TEST_F(Run, StopsOnALossThatIsNoNumberWithTheStep) {
  const auto text = error_of(Errc::numerics, [&] {
    spawn_ranks(2, [&](Group& group) {
      auto settings = config(20);
      settings.optimizer.learning_rate = 1e30;
      settings.training.grad_norm_clip = 0;
      Train<DDP>{group, tiny_gpt(), std::make_shared<Tokens>(), settings}.fit();
    });
  });
  EXPECT_NE(text.find("rank 0: loss or gradient norm is not finite"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1: loss or gradient norm is not finite"), std::string::npos)
      << "all ranks must report the error";
  EXPECT_NE(text.find("; step="), std::string::npos) << text;
  EXPECT_NE(text.find("; snapshots=none, since training.save_dir is empty"), std::string::npos) << text;
}

/// Batches without num_tokens.
struct Uncounted : Tokens {
  Batch batch(std::span<const std::int64_t> indices) const {
    auto batch = Tokens::batch(indices);
    return {batch.inputs, batch.targets};
  }
};

TEST_F(Run, AnEvaluationWhoseBatchesCountNoTargetsIsAnError) {
  const auto text = error_of(Errc::data, [&] {
    spawn_ranks(2, [&](Group& group) {
      const auto data = std::make_shared<Uncounted>();
      Trainer<GPT, Uncounted, AdamW, Float32, DDP>::Config settings;
      settings.batch_size = 4;
      Trainer<GPT, Uncounted, AdamW, Float32, DDP>{group, tiny_gpt(), data, settings, {}, {.validation = data}}
          .evaluate();
    });
  });
  EXPECT_NE(text.find("rank 0: the validation batches count no targets"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1: the validation batches count no targets"), std::string::npos) << text;
}

TEST_F(Run, ABatchThatCountsNoTargetsEndsItBeforeTheFirstStep) {
  const auto text = error_of(Errc::data, [&] {
    spawn_ranks(2, [&](Group& group) {
      Trainer<GPT, Uncounted, AdamW, Float32, DDP>::Config settings;
      settings.batch_size = 4;
      const auto model = tiny_gpt();
      Trainer<GPT, Uncounted, AdamW, Float32, DDP> trainer{group, model, std::make_shared<Uncounted>(), settings};
      std::vector<at::Tensor> before;
      for (const auto& parameter : model->parameters()) before.push_back(parameter.detach().clone());
      try {
        trainer.fit();
      } catch (const Error&) {
        for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(model->parameters()[i], before[i])) << i;
        throw;
      }
    });
  });
  EXPECT_NE(text.find("rank 0: the batches of this step count no targets"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1: the batches of this step count no targets"), std::string::npos) << text;
}

TEST_F(Run, StopsAtMaxTimeOnAllRanksAtTheSameStep) {
  spawn_ranks(2, [&](Group& group) {
    auto settings = config(0);
    settings.training.max_epochs = 0;
    settings.training.max_time = group.rank() == 0 ? 0.05 : 1e9;
    Train<DDP> trainer{group, tiny_gpt(), std::make_shared<Tokens>(), settings};
    trainer.fit();
    auto steps = at::full({1}, trainer.steps_done(), at::kLong);
    broadcast(steps, group);
    EXPECT_EQ(steps.item<std::int64_t>(), trainer.steps_done());
  });
}

TEST_F(Run, TrainsAModelWithAnOrdinaryForward) {
  struct Bigram : torch::nn::Module {
    Bigram() { table = register_parameter("table", at::zeros({11, 11})); }
    Loss forward(const Batch& batch) {
      return {at::cross_entropy_loss(at::embedding(table, batch.inputs).view({-1, 11}), batch.targets.reshape(-1), {},
                                     at::Reduction::Sum)};
    }
    at::Tensor table;
  };
  Group alone;
  Trainer<Bigram, Tokens, SGD, Float32, SingleDevice>::Config settings;
  settings.training = {.max_steps = 20, .metrics = (folder / "metrics.jsonl").string()};
  settings.optimizer.learning_rate = 1.0;
  Trainer<Bigram, Tokens, SGD, Float32, SingleDevice>{alone, std::make_shared<Bigram>(), std::make_shared<Tokens>(),
                                                      settings}
      .fit();
  EXPECT_NEAR(losses().front(), std::log(11.0), 1e-5);
  EXPECT_LT(losses().back(), losses().front());
}

}  // namespace
}  // namespace ddpxx::trainer_test
