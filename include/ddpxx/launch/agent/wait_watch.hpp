// ddpxx/launch/agent/wait_watch.hpp — tells of ranks that have waited long for a collective.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/core/number_list.hpp>
#include <ddpxx/core/rank_progress.hpp>

namespace ddpxx::detail {

/// Tells which ranks of a machine have waited long for one collective, and what its other ranks have done. This shows a
/// rank that hangs, or that reads data for minutes, long before the time limit of the collective ends the run.
class WaitWatch {
 public:
  using Clock = std::chrono::steady_clock;

  /// How often to look at the ranks.
  static constexpr std::chrono::seconds kInterval{5};
  /// The shortest wait of which to tell.
  static constexpr std::chrono::seconds kFirst{30};

  /// A rank that runs.
  struct Watched {
    int rank;
    const RankProgress* progress;
  };

  /// Looks at the ranks at the time `now`. Returns a sentence if some have waited for kFirst, and another one each time
  /// that this has doubled.
  std::optional<std::string> look(Clock::time_point now, std::span<const Watched> ranks) {
    std::chrono::seconds longest{0};
    for (const auto& [rank, progress] : ranks) {
      auto& seen = seen_[rank];
      const auto awaited = progress->awaited_number();
      if (awaited == 0 || awaited != seen.awaited) seen = {awaited, now};
      longest = std::max(longest, std::chrono::duration_cast<std::chrono::seconds>(now - seen.since));
    }
    if (longest < kFirst) next_ = kFirst;
    if (longest < next_) return std::nullopt;
    next_ = 2 * longest;
    return sentence(longest, ranks);
  }

 private:
  struct Seen {
    std::uint64_t awaited = 0;  ///< The number of the collective that the rank waits for; 0 for none.
    Clock::time_point since = {};
  };

  std::string sentence(std::chrono::seconds longest, std::span<const Watched> ranks) const {
    std::map<std::string, std::vector<int>> waiting, others;
    for (const auto& [rank, progress] : ranks)
      (seen_.at(rank).awaited != 0 ? waiting : others)[progress->last_collective()].push_back(rank);
    std::string text = "a collective has not ended for " + std::to_string(longest.count()) + " s";
    const char* gap = ": ";
    for (const auto& [collective, numbers] : waiting)
      text += std::exchange(gap, "; ") + names_of(numbers) + (numbers.size() == 1 ? " waits for " : " wait for ") +
              collective;
    for (const auto& [collective, numbers] : others)
      text += gap + names_of(numbers) + (numbers.size() == 1 ? " does" : " do") + " not wait for it" +
              (collective.empty() ? std::string{}
                                  : std::string{", the last that "} + (numbers.size() == 1 ? "it" : "each") +
                                        " has started is " + collective);
    return text;
  }
  static std::string names_of(const std::vector<int>& numbers) {
    return (numbers.size() == 1 ? "rank " : "ranks ") + number_list(numbers);
  }

  std::chrono::seconds next_ = kFirst;  ///< The wait of which the next sentence tells.
  std::map<int, Seen> seen_;
};

}  // namespace ddpxx::detail
