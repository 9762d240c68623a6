// ddpxx/comm/rank_info.hpp — the numbers of this process among the processes of a run.
#pragma once

#include <compare>
#include <concepts>
#include <ostream>
#include <string>

#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// A whole number with one meaning; other numbers and plain ints do not convert to it implicitly.
template <class Meaning>
struct Numbered {
  int value;
  constexpr explicit Numbered(int number) noexcept : value{number} {}
  friend constexpr auto operator<=>(const Numbered&, const Numbered&) = default;
  friend std::ostream& operator<<(std::ostream& out, Numbered number) { return out << number.value; }
};

using Rank = Numbered<struct RankMeaning>;            ///< Number of a process among all processes of the run, from 0.
using WorldSize = Numbered<struct WorldSizeMeaning>;  ///< Number of all processes of the run.
using LocalRank = Numbered<struct LocalRankMeaning>;  ///< Number of a process among those on this machine, from 0.
using LocalWorldSize = Numbered<struct LocalWorldSizeMeaning>;  ///< Number of processes on this machine.

/// The maximum number of ranks of a run: LibTorch's TCPStore accepts at most this many keys in a request.
inline constexpr int kMaxRanks = 128 * 1024;

/// The process that serves the store in which ranks meet: rank 0, torchrun's agent, or the agent of ddpxx-run.
enum class StoreHost { rank_zero, torchrun, ddpxx_run };

/// The numbers of one process; the default is a world of one.
struct RankInfo {
  Rank rank{0};
  WorldSize world_size{1};
  LocalRank local_rank{0};
  LocalWorldSize local_world_size{1};
  int restart = 0;  ///< Number of restarts by the launcher; under torchrun, those that this rank's machine has counted.

  friend bool operator==(const RankInfo&, const RankInfo&) = default;
};

/// Errors  `peer` when a rank lies outside its world, or a world is empty or has more than `kMaxRanks` ranks.
inline void check(const RankInfo& rank_info) {
  const auto hold = [](const char* what, int rank, const char* world, int size) {
    if (size < 1)
      throw Error{Errc::peer, std::string{world} + " is " + std::to_string(size) + "; it must be at least 1"};
    if (size > kMaxRanks)
      throw Error{Errc::peer, std::string{world} + " is " + std::to_string(size) + "; it must be at most " +
                                  std::to_string(kMaxRanks)};
    if (rank < 0 || rank >= size)
      throw Error{Errc::peer, std::string{what} + ' ' + std::to_string(rank) + " is outside its world: with " + world +
                                  ' ' + std::to_string(size) + " it must be 0 to " + std::to_string(size - 1)};
  };
  hold("rank", rank_info.rank.value, "world size", rank_info.world_size.value);
  hold("local rank", rank_info.local_rank.value, "local world size", rank_info.local_world_size.value);
  if (rank_info.local_world_size.value > rank_info.world_size.value)
    throw Error{Errc::peer, "local world size " + std::to_string(rank_info.local_world_size.value) +
                                " is larger than the world size " + std::to_string(rank_info.world_size.value)};
  if (rank_info.restart < 0) throw Error{Errc::peer, "restart " + std::to_string(rank_info.restart) + " is negative"};
}

static_assert(!std::convertible_to<int, Rank> && !std::convertible_to<LocalRank, Rank>);

}  // namespace ddpxx
