// ddpxx/train/same_run.hpp — were all ranks started to do the same?
#pragma once

#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx {

/// Compares the settings by which ranks must act alike; one that differs would leave some waiting for the others.
/// Ranks   Collective; every rank comes to the same verdict.
/// Errors  `peer` naming each setting that differs, with two ranks and their values.
inline void check_same_run(const Settings& settings, const Group& group) {
  std::string mine;
  for (const auto& setting : settings) mine += setting.path + "\n" + setting.value + "\n";
  const auto all = all_gather_text(mine, group);
  std::string differences;
  for (std::size_t rank = 1; rank < all.size() && differences.empty(); ++rank) {
    std::istringstream first{all[0]}, other{all[rank]};
    for (std::string path, here, there; std::getline(first, path) && std::getline(first, here);) {
      std::getline(other, there);
      std::getline(other, there);
      if (here != there)
        differences += "\n  " + path + ": " + here + " on rank 0, " + there + " on rank " + std::to_string(rank);
    }
  }
  if (!differences.empty())
    throw Error{Errc::peer, "the ranks were started with different settings:" + differences +
                                "\nstart all of them with one configuration and one text"};
}

}  // namespace ddpxx
