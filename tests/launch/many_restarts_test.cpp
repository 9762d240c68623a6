// Agents that start their ranks again and again need no more descriptors, threads, processes and memory than before.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <sys/types.h>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "../temporary_folder.hpp"
#include "../unused_port.hpp"
#include "started_program.hpp"

namespace many_restarts_test {
namespace {

namespace fs = std::filesystem;

std::size_t num_entries(const fs::path& folder) {
  std::error_code gone;
  const fs::directory_iterator entries{folder, gone};
  return gone ? 0 : static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

/// The number of descriptors and threads of a process.
struct Use {
  std::size_t descriptors = 0, threads = 0;

  static Use of(pid_t process) {
    const fs::path folder = "/proc/" + std::to_string(process);
    return {num_entries(folder / "fd"), num_entries(folder / "task")};
  }
  bool is_at_most(const Use& other) const { return descriptors <= other.descriptors && threads <= other.threads; }
  friend std::ostream& operator<<(std::ostream& out, const Use& use) {
    return out << use.descriptors << " descriptors and " << use.threads << " threads";
  }
};

/// The processes whose parent is `process`, also those that have ended and wait for it.
std::vector<pid_t> children_of(pid_t process) {
  std::vector<pid_t> children;
  std::ifstream file{"/proc/" + std::to_string(process) + "/task/" + std::to_string(process) + "/children"};
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

/// What an agent and its children use while ranks run.
std::vector<Use> use_of_tree(pid_t agent) {
  std::vector<Use> uses{Use::of(agent)};
  for (const pid_t child : children_of(agent)) uses.push_back(Use::of(child));
  return uses;
}

/// The resident memory of a process, in KiB.
long resident(pid_t process) {
  std::ifstream file{"/proc/" + std::to_string(process) + "/status"};
  for (std::string name; file >> name; file.ignore(1'000, '\n'))
    if (long size = 0; name == "VmRSS:" && file >> size) return size;
  return 0;
}

bool are_at_most(const std::vector<Use>& uses, const std::vector<Use>& others) {
  return std::equal(uses.begin(), uses.end(), others.begin(), others.end(),
                    [](const Use& use, const Use& other) { return use.is_at_most(other); });
}

/// What an agent and its children use, once that is at most `most`, or after ten seconds. On a busy machine a rank may
/// run before its agent has closed what only the rank uses.
std::vector<Use> settled_use(pid_t agent, const std::vector<Use>& most) {
  auto uses = use_of_tree(agent);
  for (int i = 0; i < 200 && !are_at_most(uses, most); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
    uses = use_of_tree(agent);
  }
  return uses;
}

class ManyRestarts : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Of, ManyRestarts, testing::Values(1, 2), [](const auto& info) {
  return std::to_string(info.param) + (info.param == 1 ? "Node" : "Nodes");
});

TEST_P(ManyRestarts, NeedNothingMoreEachTime) {
  constexpr int kRestarts = 30, kFirst = 3;  // the first ones may fill caches
  constexpr long kGrowth = 1'024;            // KiB; a page for each restart would be 108
  const TemporaryFolder folder;
  // The ranks report a step, so that there is no pause before a restart, and fail when the test has looked at them.
  const auto script = "printf bts >&${DDPXX_MILESTONES%%:*}; echo >> " + (folder / "started.").string() +
                      "$TORCHELASTIC_RESTART_COUNT; until [ -e " + (folder / "go.").string() +
                      "$TORCHELASTIC_RESTART_COUNT ]; do sleep 0.01; done; exit $((TORCHELASTIC_RESTART_COUNT < " +
                      std::to_string(kRestarts) + "))";
  const auto num_nodes = static_cast<std::size_t>(GetParam());
  std::vector<std::string> flags{"--nproc-per-node=2", "--max-restarts=" + std::to_string(kRestarts)};
  for (const auto& more : {"--nnodes=" + std::to_string(num_nodes), std::string{"--rdzv-backend=c10d"},
                           "--rdzv-endpoint=127.0.0.1:" + std::to_string(unused_port())})
    flags.push_back(more);
  for (const auto& word : {std::string{"/bin/bash"}, std::string{"-c"}, script}) flags.push_back(word);
  std::deque<StartedProgram> agents;
  for (std::size_t i = 0; i < num_nodes; ++i) {
    auto words = flags;
    words.insert(words.begin(), program_folder() + "/ddpxx-run");
    agents.emplace_back(std::move(words));
  }

  const auto wait_for_ranks = [&](int restart) {
    agents.front().wait_for_lines(folder / ("started." + std::to_string(restart)), 2 * num_nodes);
    std::this_thread::sleep_for(std::chrono::milliseconds{50});  // lets a rank's last `sleep` and new threads settle
  };
  std::vector<std::vector<Use>> before;
  std::vector<long> memory;
  for (int restart = 0; restart <= kRestarts; ++restart) {
    wait_for_ranks(restart);
    if (restart == kFirst || restart == kRestarts)
      for (std::size_t i = 0; i < num_nodes; ++i) {
        if (restart == kFirst) {
          before.push_back(use_of_tree(agents[i].pid()));
          memory.push_back(resident(agents[i].pid()));
          EXPECT_EQ(before[i].size(), 4U) << "the agent, its guardian and two ranks";
        } else {
          const auto use = settled_use(agents[i].pid(), before[i]);
          EXPECT_TRUE(are_at_most(use, before[i])) << "agent " << i << ": " << testing::PrintToString(before[i])
                                                   << " and now " << testing::PrintToString(use);
          EXPECT_LE(resident(agents[i].pid()), memory[i] + kGrowth) << "agent " << i;
        }
      }
    folder.file("go." + std::to_string(restart), "");
  }
  for (auto& agent : agents) EXPECT_EQ(agent.wait().code, 0);
}

}  // namespace
}  // namespace many_restarts_test
