// ddpxx/core/unreplaced_tilde.hpp — a place such as `~/runs`, in which no shell has replaced the `~`.
#pragma once

#include <string>

namespace ddpxx::detail {

/// The problem of a place that begins with `~/`; empty for other places. A shell replaces `~` only at the beginning of
/// a word, so that `training.save_dir=~/runs`, or the same line of a file, would make a folder with the name `~`.
inline std::string problem_of_tilde(const std::string& place) {
  if (place != "~" && !place.starts_with("~/")) return {};
  const auto rest = place.substr(1);
  return "\"" + place + "\": ~ is no home folder here, since no shell has replaced it: write $HOME" + rest +
         " as an argument, ${oc.env:HOME}" + rest + " in a file, or ./" + place + " for a folder with the name ~";
}

}  // namespace ddpxx::detail
