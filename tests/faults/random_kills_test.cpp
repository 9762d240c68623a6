// Ranks are killed at random moments of a training, which must give the result of an undisturbed training.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/snapshot/snapshot.hpp>

#include "../launch/started_program.hpp"
#include "../temporary_folder.hpp"
#include "watched_run.hpp"

namespace random_kills_test {
namespace {

namespace fs = std::filesystem;

/// How a run is trained, and how it is resumed after a kill.
struct KilledRun {
  const char* strategy;
  int ranks;
  const char* writing;
  bool restarts;  ///< ddpxx-run restarts the ranks; if false, the test runs the command again.
  int kills;
};

/// The losses, the last snapshot and the file names of a run, without the random parts of the names.
struct Result {
  std::map<std::int64_t, double> losses;
  ddpxx::Snapshot snapshot;
  std::set<std::string> files;  ///< In training.save_dir.
};

class RandomKills : public testing::TestWithParam<KilledRun> {
 protected:
  static constexpr int kSteps = 120;

  std::vector<std::string> command(const fs::path& folder) const {
    const auto& run = GetParam();
    std::vector<std::string> words{"/usr/bin/env",
                                   "OMP_NUM_THREADS=1",
                                   program_folder() + "/ddpxx-run",
                                   "--standalone",
                                   "--nproc-per-node",
                                   std::to_string(run.ranks),
                                   "--max-restarts",
                                   run.restarts ? "100" : "0",
                                   program_folder() + "/mingpt",
                                   "data.path=" + text_,
                                   "data.block_size=16",
                                   "data.batch_size=2",
                                   "model.n_layer=2",
                                   "model.n_head=2",
                                   "model.n_embd=16",
                                   "training.device=cpu",
                                   "training.max_epochs=0",
                                   "training.max_steps=" + std::to_string(kSteps),
                                   "training.save_every=4",
                                   "training.save_dir=" + (folder / "run").string(),
                                   "training.metrics=" + metrics(folder),
                                   "snapshot.writing=" + std::string{run.writing},
                                   "strategy=" + std::string{run.strategy}};
    return words;
  }
  static std::string metrics(const fs::path& folder) { return (folder / "metrics.jsonl").string(); }

  static Result result(const fs::path& folder) {
    Result result{losses(folder), ddpxx::load_snapshot(folder / "run").value(), {}};
    for (const auto& entry : fs::recursive_directory_iterator{folder / "run"})
      if (entry.is_regular_file())
        result.files.insert(std::regex_replace(entry.path().lexically_relative(folder).string(),
                                               std::regex{"\\.[0-9a-f]{12}\\."}, ".START."));
    return result;
  }

  static bool has_ended(const StartedProgram& program) {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(program.pid()), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           info.si_pid != 0;
  }
  TemporaryFolder folder_;
  std::string text_ = folder_.file("text.txt", [] {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "the quick brown fox " + std::to_string(i * i) + "\n";
    return text;
  }());
};
INSTANTIATE_TEST_SUITE_P(Runs, RandomKills,
                         testing::Values(KilledRun{"ddp", 4, "foreground", true, 7},
                                         KilledRun{"zero2", 2, "background", false, 7},
                                         KilledRun{"fsdp", 3, "background", true, 6}),
                         [](const auto& info) { return std::string{info.param.strategy}; });

TEST_P(RandomKills, OfRanksChangeNoBitOfTheResultAndLeaveNothingBehind) {
  const auto seed = [] {
    const char* given = std::getenv("DDPXX_KILL_SEED");
    return given != nullptr ? static_cast<unsigned>(std::atoi(given)) : 1U;
  }();
  SCOPED_TRACE("DDPXX_KILL_SEED=" + std::to_string(seed));
  std::mt19937 random{seed};
  const auto draw = [&](int least, int most) { return std::uniform_int_distribution{least, most}(random); };

  const auto quiet = folder_ / "quiet";
  fs::create_directory(quiet);
  ASSERT_EQ(StartedProgram{command(quiet)}.wait().code, 0);
  const auto expected = result(quiet);
  ASSERT_EQ(expected.losses.size(), static_cast<std::size_t>(kSteps));

  // On a busy machine a run may end before all kills were made: then another run follows.
  for (int run = 1, kills = 0; kills < GetParam().kills; ++run) {
    const auto killed = folder_ / ("killed" + std::to_string(run));
    fs::create_directory(killed);
    std::string told;
    for (bool is_complete = false; !is_complete;) {
      StartedProgram program{command(killed)};
      // Waits for a step that no earlier start has done, so that the run makes progress between two kills.
      auto wanted = last_step(killed) + draw(1, 6);
      for (std::uintmax_t seen = 0; kills < GetParam().kills && !has_ended(program);) {
        std::error_code none;
        const auto size = fs::file_size(metrics(killed), none);
        if (none || size == std::exchange(seen, size) || last_step(killed) < wanted) {
          std::this_thread::sleep_for(std::chrono::milliseconds{1});
          continue;
        }
        std::this_thread::sleep_for(std::chrono::microseconds{draw(0, 5'000)});
        const auto ranks = ranks_of(program.pid());
        if (ranks.empty()) continue;
        wanted = last_step(killed) + draw(1, 6);
        ::kill(ranks[static_cast<std::size_t>(draw(0, static_cast<int>(ranks.size()) - 1))], SIGKILL);
        ++kills;
        if (!GetParam().restarts) break;
      }
      const auto ended = program.wait();
      told += ended.err;
      is_complete = ended.code == 0;
      if (!is_complete) ASSERT_EQ(ended.code, 128 + SIGKILL) << told;
    }
    const auto got = result(killed);
    EXPECT_EQ(got.losses, expected.losses) << told;
    EXPECT_EQ(got.files, expected.files) << told;
    EXPECT_EQ(got.snapshot.run.step, expected.snapshot.run.step);
    ASSERT_EQ(got.snapshot.tensors.size(), expected.snapshot.tensors.size());
    for (const auto& [name, tensor] : expected.snapshot.tensors)
      EXPECT_TRUE(at::equal(got.snapshot.tensors.at(name), tensor)) << name;
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace random_kills_test
