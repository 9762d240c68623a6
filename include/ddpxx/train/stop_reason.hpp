// ddpxx/train/stop_reason.hpp — why a run stops before its end, as all ranks say it.
#pragma once

#include <algorithm>
#include <string>

#include <ddpxx/comm/text.hpp>

namespace ddpxx {

/// What asked a run to stop, and where: `SIGTERM on rank 2`. `heard` is what asked this rank, such as the name of a
/// signal; empty where nothing did.
/// Ranks   Collective. Every rank gets the same text.
inline std::string stop_reason(const std::string& heard, const Group& group) {
  const auto all = all_gather_text(heard, group);
  const auto first = std::find_if(all.begin(), all.end(), [](const auto& text) { return !text.empty(); });
  if (first == all.end()) return "request";
  if (all.size() == 1) return *first;
  if (std::count(all.begin(), all.end(), *first) == static_cast<std::ptrdiff_t>(all.size()))
    return *first + " on all ranks";
  return *first + " on rank " + std::to_string(first - all.begin());
}

}  // namespace ddpxx
