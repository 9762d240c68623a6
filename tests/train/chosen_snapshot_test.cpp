// A run that starts from a snapshot that the user has chosen, and a run that starts from weights only.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/on_rank_zero.hpp>
#include <ddpxx/core/config_record.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/optim/sgd.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/precision/float32.hpp>
#include <ddpxx/snapshot/load_model.hpp>
#include <ddpxx/snapshot/snapshot.hpp>
#include <ddpxx/snapshot/snapshot_choice.hpp>
#include <ddpxx/storage/folder.hpp>
#include <ddpxx/testing.hpp>
#include <ddpxx/train/chosen_snapshot.hpp>
#include <ddpxx/train/trainer.hpp>

#include "../error_of.hpp"
#include "../snapshot/memory_storage.hpp"
#include "training_run.hpp"

namespace ddpxx::chosen_snapshot_test {
namespace {

TEST(SnapshotChoice, IsAPlaceWithAStepOrTheBestOrTheNewest) {
  EXPECT_EQ(parse_snapshot_choice("runs/a").place, "runs/a");
  EXPECT_TRUE(parse_snapshot_choice("runs/a").is_newest());
  EXPECT_EQ(parse_snapshot_choice("runs/a:300").step, 300);
  EXPECT_EQ(parse_snapshot_choice("runs/a:300").place, "runs/a");
  EXPECT_TRUE(parse_snapshot_choice("s3://bucket/a:best").best);
  EXPECT_EQ(parse_snapshot_choice("s3://bucket/a:best").place, "s3://bucket/a");
  for (const char* place : {"s3://bucket", "runs/a:b", "runs/12:30:x", "runs/a:"})
    EXPECT_EQ(parse_snapshot_choice(place).place, place);
}

/// A place with three snapshots of one run.
class ChosenSnapshot : public testing::Test {
 protected:
  using Train = Trainer<GPT, Tokens, AdamW, Float32, DDP>;

  static Train::Config config(std::int64_t max_steps) {
    Train::Config config;
    config.batch_size = 4;
    config.training = {.max_steps = max_steps, .max_epochs = 0, .seed = 5};
    config.optimizer.learning_rate = 1e-2;
    return config;
  }
  static std::shared_ptr<GPT> model() {
    at::manual_seed(3);
    return std::make_shared<GPT>(GPTConfig{.n_layer = 1, .n_head = 2, .n_embd = 16, .dropout = 0.1}, 11, 8);
  }
  static void train(const Train::Config& config, int ranks = 1) {
    spawn_ranks(ranks, [&](Group& group) { Train{group, model(), std::make_shared<Tokens>(), config}.fit(); });
  }
  std::string path(const char* name) const { return (folder_ / name).string(); }

  void SetUp() override {
    auto first = config(6);
    first.training.save_dir = path("a");
    first.training.save_every = 2;
    first.snapshot.keep_last = 0;
    train(first);
    // The place `rated`: the same snapshots with validation losses, as evaluations would have found them.
    for (const auto& [step, loss] : {std::pair{2, 3.0}, std::pair{4, 2.0}, std::pair{6, 2.5}}) {
      const auto storage = open_storage(path("a"));
      auto snapshot = read_snapshot(*storage, choose_snapshot(*storage, {.place = path("a"), .step = step}));
      snapshot.run.metrics = {{"loss", loss}};
      save_snapshot(path("rated"), snapshot);
    }
  }

  static Snapshot at(const std::string& choice) {
    const auto wanted = parse_snapshot_choice(choice);
    const auto storage = open_storage(wanted.place);
    return read_snapshot(*storage, choose_snapshot(*storage, wanted));
  }
  static std::string error_of(Errc code, const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "no error";
  }

  TemporaryFolder folder_;
};

TEST(ReadChosen, ListsAgainOnlyIfTheSnapshotWasRemovedMeanwhile) {
  MemoryStorage storage;
  const auto save = [&](std::int64_t step) {
    save_snapshot(storage, {.run = {.step = step}, .tensors = {{"model.x", at::ones({2})}}});
  };
  save(2);
  spawn_ranks(2,
              [&](Group& group) {
                const auto found = read_chosen(storage, {}, group, [&](const Manifest& manifest) -> std::string {
                  if (manifest.run.step == 4) return {};
                  on_rank_zero(group, Errc::storage, [&] {
                    save(4);
                    Snapshots{storage}.remove(Snapshots{storage}.list().back());
                  });
                  throw Error{Errc::storage, "No such file"};
                });
                EXPECT_EQ(found.run.step, 4);
                const auto failing = [](const Manifest&) -> std::string { throw Error{Errc::storage, "no answer"}; };
                EXPECT_THROW(read_chosen(storage, {}, group, failing), Error);
              },
              {.ranks = Ranks::threads});
}

TEST_F(ChosenSnapshot, ContinuesAtItsStepLikeTheRunAndKeepsItsPlaceUnchanged) {
  auto other = config(6);
  other.snapshot.name = path("a") + ":2";
  other.training.save_dir = path("b");
  train(other);
  expect_same_bits(at(path("b")), at(path("a")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a/step-00000002/attempts"))
      << "the chosen snapshot must not be changed";
  EXPECT_EQ(at(path("a")).run.step, 6) << "no snapshot in the chosen snapshot's place may be removed";
  EXPECT_EQ(at(path("a") + ":2").run.step, 2);
}

TEST_F(ChosenSnapshot, ThatHasReachedTheEndOfTheTrainingSaysSo) {
  auto other = config(6);
  other.snapshot.name = path("a");
  const auto log_of = [](const Train::Config& config) {
    testing::internal::CaptureStderr();
    train(config);
    return testing::internal::GetCapturedStderr();
  };
  const std::string nothing =
      "already at step 6: nothing left to do; set a larger training.max_steps or max_epochs to ";
  const auto chosen = nothing + "train on, or begin with an earlier snapshot\n";
  const auto own = nothing + "train on, or another training.save_dir to begin anew\n";
  EXPECT_THAT(log_of(other), testing::HasSubstr(chosen)) << "without a save_dir";
  other.training.save_dir = path("b");
  EXPECT_THAT(log_of(other), testing::HasSubstr(chosen));
  EXPECT_THAT(log_of(other), testing::HasSubstr(own)) << "the second start resumes from a snapshot of its own";
}

TEST_F(ChosenSnapshot, IsTheBestOrTheNewestOfItsPlaceOrTheErrorSaysWhatIsThere) {
  EXPECT_EQ(at(path("rated") + ":best").run.step, 4);
  EXPECT_EQ(at(path("rated")).run.step, 6);
  const auto none = error_of(Errc::storage, [&] { at(path("rated") + ":3"); });
  EXPECT_NE(none.find("no snapshot of step 3 at"), std::string::npos) << none;
  EXPECT_NE(none.find("there are 6 4 2"), std::string::npos) << none;
  const auto unrated = error_of(Errc::storage, [&] { at(path("a") + ":best"); });
  EXPECT_NE(unrated.find("no snapshot with a validation loss"), std::string::npos) << unrated;
}

TEST_F(ChosenSnapshot, IsNotTakenForAFolderWithItsNameWithoutAHint) {
  const auto colon = path("a") + ":3";
  std::filesystem::create_directory(colon);
  const auto none = error_of(Errc::storage, [&] { at(colon); });
  EXPECT_NE(none.find("but a folder with the name " + colon + ": name " + colon + "/ for it; there are 6 4 2"),
            std::string::npos)
      << none;
}

TEST_F(ChosenSnapshot, ThatIsDamagedIsNamedBehindTheStepsThatAreThere) {
  const auto manifest = folder_ / "a/step-00000004/manifest.json";
  std::filesystem::resize_file(manifest, 100);
  const auto text = error_of(Errc::storage, [&] { at(path("a") + ":4"); });
  EXPECT_NE(text.find("at " + path("a") + "/; there are 6 2\n  " + manifest.string() + " is not usable"),
            std::string::npos)
      << text;
}

TEST_F(ChosenSnapshot, IsNamedByThePlaceThatHoldsItsFolder) {
  const auto step = path("a/step-00000004");
  const auto chosen = error_of(Errc::storage, [&] { at(step + '/'); });
  EXPECT_NE(chosen.find("which is one snapshot itself: name " + path("a") + ":4"), std::string::npos) << chosen;
  auto inside = config(6);
  inside.training.save_dir = step;
  Group alone;
  const auto refused = error_of(Errc::storage, [&] {
    Train{alone, model(), std::make_shared<Tokens>(), inside}.fit();
  });
  EXPECT_NE(refused.find("it is the folder of one snapshot, of step 4: to go on with that run, name " + path("a")),
            std::string::npos)
      << refused;
  EXPECT_FALSE(std::filesystem::exists(step + "/.owner"));
  Folder unfinished{path("b/step-00000004")};  // without a manifest, a name alone makes no snapshot
  EXPECT_FALSE(snapshot_of_step_folder(unfinished));
}

TEST_F(ChosenSnapshot, IsTheBestByTheMetricThatTheRunHasRecorded) {
  for (const auto& [step, accuracy] : {std::pair{2, 0.5}, std::pair{4, 0.7}, std::pair{6, 0.9}}) {
    auto snapshot = at(path("rated") + ':' + std::to_string(step));
    snapshot.run.metrics["accuracy"] = accuracy;
    snapshot.run.settings.push_back({"snapshot.best_by", "\"accuracy\""});
    snapshot.run.settings.push_back({"snapshot.best_mode", "\"max\""});
    save_snapshot(path("accurate"), snapshot);
  }
  EXPECT_EQ(at(path("accurate") + ":best").run.step, 6);
}

TEST_F(ChosenSnapshot, IsNotTheSecondBestWhereTheBestIsDamaged) {
  const auto manifest = folder_ / "rated/step-00000004/manifest.json";
  std::filesystem::resize_file(manifest, 100);
  const auto text = error_of(Errc::storage, [&] { at(path("rated") + ":best"); });
  EXPECT_NE(text.find(manifest.string() + " is not usable"), std::string::npos) << text;
  EXPECT_EQ(at(path("rated")).run.step, 6);
}

TEST_F(ChosenSnapshot, AStartedRunGoesOnWithItsOwn) {
  auto other = config(4);
  other.snapshot.name = path("a") + ":2";
  other.training.save_dir = path("b");
  train(other);
  other.training.max_steps = 6;
  train(other, 2);  // the same command again, on more ranks
  EXPECT_EQ(at(path("b")).run.step, 6);
}

TEST_F(ChosenSnapshot, AStartedRunGoesOnWithItsOwnWhereTheChosenPlaceCannotBeExamined) {
  auto other = config(2);
  other.training.save_dir = path("b");
  train(other);
  std::filesystem::create_symlink(path("loop"), path("loop"));  // the system follows it and gives up
  for (const char* choice : {"", ":2", ":best"}) {
    ++other.training.max_steps;
    other.snapshot.name = path("loop") + choice;
    train(other);
    EXPECT_EQ(at(path("b")).run.step, other.training.max_steps) << choice;
  }
}

TEST_F(ChosenSnapshot, ThatCannotBeLoadedLeavesNoPlaceToSaveTo) {
  spawn_ranks(2, [&](Group& group) {
    auto other = config(6);
    other.snapshot.name = path("a") + ":3";
    other.training.save_dir = path("b");
    Train trainer{group, model(), std::make_shared<Tokens>(), other};
    const auto missing = error_of(Errc::storage, [&] { trainer.resume(); });
    EXPECT_NE(missing.find("no snapshot of step 3"), std::string::npos) << missing;
    const auto closed = error_of(Errc::config, [&] { trainer.save(); });
    EXPECT_NE(closed.find("save() comes between resume()"), std::string::npos) << closed;
    trainer.close();
  });
  EXPECT_FALSE(std::filesystem::exists(folder_ / "b/step-00000000"))
      << "the next start would go on from a model that has neither trained nor loaded anything";
}

TEST_F(ChosenSnapshot, OfAStepCannotLieWhereTheRunSaves) {
  // A restart of the command would find the steps that the run itself has saved, so the first start is refused too.
  for (const char* choice : {":2", ":6", ":best"}) {
    auto other = config(8);
    other.snapshot.name = path("a") + choice;
    other.training.save_dir = path("b") + "/../a/";
    const auto text = error_of(Errc::config, [&] { train(other); });
    EXPECT_NE(text.find("training.save_dir is the same place"), std::string::npos) << choice << ": " << text;
  }
  auto newest = config(8);
  newest.snapshot.name = newest.training.save_dir = path("a");
  train(newest);
  EXPECT_EQ(at(path("a")).run.step, 8);
}

TEST(ChosenPlaces, InABucketAreOneWhereTheirStoragesHaveOneName) {
  const StorageOpener open = [](const std::string& place) -> std::unique_ptr<Storage> {
    if (place.find("closed") != std::string::npos) throw Error{Errc::storage, "no key"};
    return std::make_unique<MemoryStorage>();  // each has the name memory/
  };
  EXPECT_EQ(ddpxx::code_of([&] { check_chosen_place("s3://bucket/a:2", "s3://bucket/a/", open); }), Errc::config);
  EXPECT_EQ(ddpxx::error_of([&] { check_chosen_place("s3://bucket/a:2", "s3://bucket/a/", open); }),
            "snapshot=s3://bucket/a:2: training.save_dir is the same place; choose another training.save_dir, or leave "
            "the step out to go on with the newest");
  check_chosen_place("s3://bucket/closed:2", "s3://bucket/a/", open);
}

TEST_F(ChosenSnapshot, OfARunWithOtherSettingsIsTakenWithAWarning) {
  auto snapshot = at(path("a"));
  snapshot.run.settings.push_back({"optimizer.learning_rate", "0.01"});
  save_snapshot(path("recorded"), snapshot);
  auto other = config(7);
  other.snapshot.name = path("recorded");
  const ConfigRecord record{.settings = {{"optimizer.learning_rate", "0.02", Resume::warn, ""}}};
  testing::internal::CaptureStderr();
  Group alone;
  Train{alone, model(), std::make_shared<Tokens>(), other, record}.fit();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("resumed with a changed setting: optimizer.learning_rate 0.01 -> 0.02\n"));
}

TEST_F(ChosenSnapshot, IsNotBehindASymbolicLinkWhichALineNames) {
  std::filesystem::create_directory_symlink(path("a/step-00000006"), path("a/step-00000008"));
  auto other = config(7);
  other.snapshot.name = path("a");
  other.training.save_dir = path("b");
  testing::internal::CaptureStderr();
  train(other);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(testing::HasSubstr(path("a/step-00000008") +
                                                " is a symbolic link and is left out: links are not followed\n"),
                             testing::HasSubstr("begins with step 6 of " + path("a/step-00000006"))));
}

TEST_F(ChosenSnapshot, LoadsIntoAModelThatIsNotTrained) {
  const auto loaded = model();
  const auto storage = open_storage(path("a"));
  const auto manifest = choose_snapshot(*storage, {.place = path("a")});
  load_model(*loaded, *storage, manifest);
  const auto snapshot = at(path("a"));
  for (const auto& item : loaded->named_parameters())
    EXPECT_TRUE(at::equal(item.value(), snapshot.tensors.at("model." + item.key()))) << item.key();
  GPT other{GPTConfig{.n_layer = 1, .n_head = 2, .n_embd = 8}, 11, 8};
  EXPECT_NE(error_of(Errc::storage, [&] { load_model(other, *storage, manifest); })
                .find("transformer.wte.weight: [11, 16] in the snapshot, [11, 8] in the model"),
            std::string::npos);
}

TEST_F(ChosenSnapshot, OfOnlyAModelLetsAnyOptimizerStartAtItsStep) {
  auto alone = at(path("a"));
  std::erase_if(alone.tensors, [](const auto& item) { return !item.first.starts_with("model."); });
  alone.run.optimizer.clear();
  save_snapshot(path("model"), alone);
  auto adam = config(7);
  adam.training.save_dir = path("model");
  adam.training.ema_decay = 0.5;
  train(adam, 2);
  const auto after = at(path("model"));
  EXPECT_EQ(after.run.step, 7);
  EXPECT_EQ(after.tensors.at("optimizer.step").item<float>(), 1) << "AdamW must count its steps from 0";
  const auto weight = std::string{"transformer.wte.weight"};
  EXPECT_LT(
      (after.tensors.at("optimizer.ema." + weight) - after.tensors.at("model." + weight)).abs().max().item<float>(),
      0.02)
      << "the average must start from the loaded weights";

  using TrainSGD = Trainer<GPT, Tokens, SGD, Float32, DDP>;
  const auto sgd = [&](Group& group) {
    TrainSGD::Config settings;
    settings.batch_size = 4;
    settings.training = {.max_steps = 7, .max_epochs = 0, .seed = 5, .save_dir = path("sgd")};
    settings.snapshot.name = path("model") + ":6";
    settings.optimizer.learning_rate = 0.1;
    settings.optimizer.momentum = 0.9;
    TrainSGD{group, model(), std::make_shared<Tokens>(), settings}.fit();
  };
  spawn_ranks(2, sgd);
  EXPECT_EQ(at(path("sgd")).run.step, 7);
  EXPECT_TRUE(at(path("sgd")).tensors.contains("optimizer.momentum_buffer." + weight));
}

TEST_F(ChosenSnapshot, LetsSGDBeginOrEndItsMomentum) {
  using TrainSGD = Trainer<GPT, Tokens, SGD, Float32, DDP>;
  const auto train_sgd = [&](const char* place, std::int64_t steps, double momentum) {
    TrainSGD::Config settings;
    settings.batch_size = 4;
    settings.training = {.max_steps = steps, .max_epochs = 0, .seed = 5, .save_dir = path(place)};
    settings.optimizer.learning_rate = 0.1;
    settings.optimizer.momentum = momentum;
    if (momentum > 0) settings.optimizer.dampening = 0.5;
    spawn_ranks(2, [&](Group& group) { TrainSGD{group, model(), std::make_shared<Tokens>(), settings}.fit(); });
    return at(path(place));
  };
  const auto weight = std::string{"transformer.wte.weight"};
  train_sgd("begins", 2, 0.0);
  const auto begun = train_sgd("begins", 3, 0.9);
  const auto plain = train_sgd("plain", 3, 0.0);
  EXPECT_TRUE(at::equal(begun.tensors.at("model." + weight), plain.tensors.at("model." + weight)))
      << "the first step with momentum must be that without, as torch.optim.SGD does not dampen it";
  EXPECT_TRUE(begun.tensors.contains("optimizer.momentum_buffer." + weight));

  train_sgd("ends", 2, 0.9);
  const auto ended = train_sgd("ends", 3, 0.0);
  EXPECT_EQ(ended.run.step, 3);
  EXPECT_FALSE(ended.tensors.contains("optimizer.momentum_buffer." + weight));
}

TEST_F(ChosenSnapshot, EvaluatesWithoutTraining) {
  spawn_ranks(2, [&](Group& group) {
    auto settings = config(3);
    settings.training.save_dir = path("none");
    Train trainer{group, model(), std::make_shared<Tokens>(), settings, {}, {.validation = std::make_shared<Tokens>()}};
    const auto first = trainer.evaluate(), second = trainer.evaluate();
    EXPECT_EQ(first.mean_loss, second.mean_loss);
    EXPECT_NEAR(first.mean_loss, 2.4, 0.1) << "expected about log(11), the loss of random predictions";
    EXPECT_EQ(first.samples, Tokens{}.size());
    EXPECT_EQ(trainer.steps_done(), 0);
  });
  EXPECT_FALSE(std::filesystem::exists(folder_ / "none"));
}

}  // namespace
}  // namespace ddpxx::chosen_snapshot_test
