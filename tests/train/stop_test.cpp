// A training that is asked to stop: when it ends, which files it leaves, and how it resumes.
#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/milestone.hpp>
#include <ddpxx/core/program_frame.hpp>
#include <ddpxx/launch/program.hpp>
#include <ddpxx/parallel/ddp.hpp>

#include "training_run.hpp"

namespace ddpxx::stop_test {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

class Stop : public TrainingRun {
 protected:
  /// The error that ends a training of two ranks in which `operation` runs before each batch.
  std::optional<Error> end_of(const RunOptions& options, std::function<void()> operation) {
    try {
      train_watched<DDP>(2, options, std::move(operation));
    } catch (const Error& error) {
      return error;
    }
    return std::nullopt;
  }
  static std::string text_of(const std::optional<Error>& error) { return error ? error->what() : ""; }
  /// Sends a signal to one rank, the first one that calls this before its third batch.
  std::function<void()> signal_one_rank(
      int number, std::function<void()> before = [] {}) {
    return [this, number, before, batches = std::make_shared<int>(0)] {
      if (++*batches != 3) return;
      const int file = ::open((place().string() + ".signalled").c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600);
      if (file < 0) return;
      ::close(file);
      before();
      ::raise(number);
    };
  }

 private:
  ProgramFrame frame_;  // without a frame, a trainer does not handle signals
};

TEST_F(Stop, EndsAllRanksAfterTheSameStepAndGoesOnWithEqualBits) {
  const RunOptions options{.max_steps = 9, .dropout = 0.2};
  EXPECT_EQ(text_of(end_of(options, [] {})), "");
  const auto expected = snapshot();
  const auto expected_losses = losses();
  forget();

  const auto stopped = end_of(options, signal_one_rank(SIGTERM));
  ASSERT_TRUE(stopped);
  EXPECT_EQ(stopped->code(), Errc::stopped);
  const std::string said = "stopped by SIGTERM on rank [01] after step 5; the snapshot of step 5 is in " +
                           place().string() + ": run the same command again to resume from it";
  EXPECT_THAT(stopped->what(), MatchesRegex("rank [01]: " + said + "\nrank [01]: " + said));
  EXPECT_EQ(steps(), std::vector<std::int64_t>{5});

  EXPECT_EQ(text_of(end_of(options, [] {})), "");
  expect_same_bits(snapshot(), expected);
  EXPECT_EQ(losses(), expected_losses);
}

TEST_F(Stop, EndsWithTheErrorOfASaveThatFails) {
  const auto stopped = end_of({.max_steps = 1'000}, signal_one_rank(SIGUSR1, [this] {
                                std::filesystem::rename(place(), place().string() + ".moved");
                                std::ofstream{place()} << "no folder";
                              }));
  ASSERT_TRUE(stopped);
  EXPECT_EQ(stopped->code(), Errc::storage) << stopped->what();
}

TEST_F(Stop, LeavesSignalsAsTheyAreOutsideOfTheLoop) {
  struct sigaction before {
  }, during{}, after{};
  ::sigaction(SIGTERM, nullptr, &before);
  spawn_ranks(1, [&](Group& group) {
    auto data = std::make_shared<Watched>();
    data->operation = [&] { ::sigaction(SIGTERM, nullptr, &during); };
    using Train = Trainer<GPT, Watched, AdamW, Float32, DDP>;
    Train::Config config;
    config.training = {.max_steps = 1, .max_epochs = 0, .save_dir = place().string()};
    Train{group, std::make_shared<GPT>(GPTConfig{.n_layer = 1, .n_head = 1, .n_embd = 8}, 11, 8), data, config}.fit();
    ::sigaction(SIGTERM, nullptr, &after);
    EXPECT_EQ(before.sa_handler, SIG_DFL);
    EXPECT_NE(during.sa_handler, SIG_DFL);
    EXPECT_EQ(after.sa_handler, SIG_DFL);
  });
}

// srun sends SIGTERM to the other ranks as soon as the first one has ended.
TEST_F(Stop, IsFinalAlsoWhereAnotherSignalComesBeforeTheEndOfTheProgram) {
  struct SignalAtItsEnd {
    ~SignalAtItsEnd() { ::raise(SIGTERM); }
  };
  EXPECT_EXIT(
      run_program("name",
                  [&] {
                    at::set_num_threads(1);
                    Group group{{}, {}, at::kCPU};
                    const SignalAtItsEnd between;
                    using Train = Trainer<GPT, Tokens, AdamW, Float32, DDP>;
                    Train::Config config;
                    config.training = {.max_steps = 9, .max_epochs = 0, .save_dir = place().string()};
                    const GPTConfig model{.n_layer = 1, .n_head = 1, .n_embd = 8};
                    Train trainer{group, std::make_shared<GPT>(model, 11, 8), std::make_shared<Tokens>(), config};
                    trainer.request_stop();
                    trainer.fit();
                  }),
      testing::ExitedWithCode(75), "name: stopped by request_stop.. after step");
  EXPECT_EQ(steps().size(), 1U);
}

TEST_F(Stop, GivesTheSignalsBackToAProgramThatGoesOn) {
  const auto action = [] {
    struct sigaction present {};
    ::sigaction(SIGTERM, nullptr, &present);
    return present.sa_handler;
  };
  spawn_ranks(1, [&](Group& group) {
    using Train = Trainer<GPT, Tokens, AdamW, Float32, DDP>;
    Train::Config config;
    config.training = {.max_steps = 9, .max_epochs = 0, .save_dir = place().string()};
    Train trainer{group, std::make_shared<GPT>(GPTConfig{.n_layer = 1, .n_head = 1, .n_embd = 8}, 11, 8),
                  std::make_shared<Tokens>(), config};
    trainer.request_stop();
    try {
      trainer.fit();
      FAIL() << "fit() must throw when it was asked to stop";
    } catch (const Error&) {
      EXPECT_NE(action(), SIG_DFL);
    }
    EXPECT_EQ(action(), SIG_DFL);
  });
}

TEST_F(Stop, IsToldToTheLauncherLikeTheFirstStep) {
  for (const auto& [stops, saves] : {std::pair{false, false}, {true, false}, {true, true}}) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    struct stat found {};
    ::fstat(ends[1], &found);
    spawn_ranks(1, [&](Group& group) {
      ::setenv(kMilestonesVariable, (std::to_string(ends[1]) + ':' + std::to_string(found.st_ino)).c_str(), 1);
      using Train = Trainer<GPT, Tokens, AdamW, Float32, DDP>;
      Train::Config config;
      config.training = {.max_steps = 4, .max_epochs = 0, .save_dir = saves ? place().string() : ""};
      Train trainer{group, std::make_shared<GPT>(GPTConfig{.n_layer = 1, .n_head = 1, .n_embd = 8}, 11, 8),
                    std::make_shared<Tokens>(), config};
      if (stops) trainer.request_stop();
      try {
        trainer.fit();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::stopped);
      }
      // tell_launcher() must not write to another file that has got the descriptor of a closed socket.
      ::setenv(kMilestonesVariable, (std::to_string(ends[1]) + ':' + std::to_string(found.st_ino + 1)).c_str(), 1);
      tell_launcher(Milestone::stopped);
    });
    ::close(ends[1]);
    char told[8] = {};
    const auto size = ::recv(ends[0], told, sizeof told, MSG_WAITALL);
    EXPECT_EQ(std::string(told, static_cast<std::size_t>(std::max<ssize_t>(size, 0))), saves ? "ttsp" : "tts")
        << "only a run that has saved may tell the launcher that it was stopped";
    ::close(ends[0]);
  }
}

TEST_F(Stop, ComesOnRequestOfTheProgramAndLetsItGoOn) {
  spawn_ranks(2, [&](Group& group) {
    auto data = std::make_shared<Watched>();
    std::function<void()> ask = [] {};
    data->operation = [&] { ask(); };
    using Train = Trainer<GPT, Watched, AdamW, Float32, DDP>;
    Train::Config config;
    config.training = {.max_steps = 20, .max_epochs = 0};
    Train trainer{group, std::make_shared<GPT>(GPTConfig{.n_layer = 1, .n_head = 1, .n_embd = 8}, 11, 8), data, config};
    if (group.rank() == 1)
      ask = [&] {
        if (trainer.steps_done() == 2) trainer.request_stop();
      };
    try {
      trainer.fit();
      FAIL() << "fit() must throw when it was asked to stop";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::stopped);
      EXPECT_THAT(error.what(), HasSubstr("stopped by request_stop() on rank 1 after step 5; nothing was saved"));
    }
    trainer.fit();
    EXPECT_EQ(trainer.steps_done(), 20);
  });
}

TEST_F(Stop, DoesNothingToARunThatIsAtItsEndWhenItIsAgreedOn) {
  spawn_ranks(2, [&](Group& group) {
    auto data = std::make_shared<Watched>();
    std::function<void()> ask = [] {};
    data->operation = [&] { ask(); };
    using Train = Trainer<GPT, Watched, AdamW, Float32, DDP>;
    Train::Config config;
    config.training = {.max_steps = 3, .max_epochs = 0, .save_dir = place().string()};
    Train trainer{group, std::make_shared<GPT>(GPTConfig{.n_layer = 1, .n_head = 1, .n_embd = 8}, 11, 8), data, config};
    ask = [&] {
      if (group.rank() == 1 && trainer.steps_done() == 2) trainer.request_stop();
    };
    trainer.fit();
    EXPECT_EQ(trainer.steps_done(), 3);
  });
  EXPECT_EQ(steps(), std::vector<std::int64_t>{3});
}

}  // namespace
}  // namespace ddpxx::stop_test
