// ddpxx/launch/output_plan.hpp — where the outputs of the ranks go: to the console, to files, or to both.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace ddpxx {

/// Some of the two outputs of a rank. The numbers are those of torchrun's --redirects and --tee.
enum class Streams { none = 0, out = 1, err = 2, both = 3 };

constexpr bool includes(Streams some, Streams one) {
  return (static_cast<int>(some) & static_cast<int>(one)) == static_cast<int>(one);
}

/// A choice of streams for each rank of a machine.
struct StreamsOfRanks {
  Streams of_all = Streams::none;
  std::map<int, Streams> of_one = {};  ///< By local rank; if this map is not empty, other ranks have `Streams::none`.

  Streams of(int local_rank) const {
    if (of_one.empty()) return of_all;
    const auto found = of_one.find(local_rank);
    return found == of_one.end() ? Streams::none : found->second;
  }
  bool any() const { return of_all != Streams::none || !of_one.empty(); }
};

/// Where the outputs of the ranks of a machine go.
struct OutputPlan {
  std::filesystem::path log_dir = {};            ///< Empty: a temporary folder; /dev/null: no folder.
  StreamsOfRanks redirects = {};                 ///< To files instead of the console.
  StreamsOfRanks tee = {};                       ///< To files and to the console.
  std::set<int> shown_ranks = {};                ///< Local ranks whose outputs go to the console; empty: all.
  std::vector<std::string> stdout_filters = {};  ///< Lines of `tee` with one of these texts go to one more file.
  std::vector<std::string> stderr_filters = {};

  bool shows(int local_rank) const { return shown_ranks.empty() || shown_ranks.contains(local_rank); }
  bool writes_logs() const { return redirects.any() || tee.any(); }
};

}  // namespace ddpxx
