// ddpxx/train/shared_place.hpp — whether the ranks of all machines save at one place.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/on_every_rank.hpp>
#include <ddpxx/comm/on_rank_zero.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/core/host_name.hpp>
#include <ddpxx/core/namespace_name.hpp>
#include <ddpxx/storage/storage.hpp>

namespace ddpxx {

/// Checks before the first step that the first rank on each other machine, or in each other container, finds what rank
/// 0 writes to `storage`, and can write there. A machine where the shared folder is not mounted, or without the keys of
/// the bucket, would otherwise end the run when it first saves. `start` is a name that no other run has.
/// Ranks   Collective. `storage` has been prepared on rank 0.
/// Errors  `storage` on every rank, naming the first rank that does not reach the place.
inline void check_shared_place(Storage& storage, const std::string& start, const Group& group) {
  const auto mounts = all_gather_text(detail::namespace_name("mnt"), group);
  if (std::ranges::all_of(mounts, [&](const std::string& other) { return other == mounts.front(); })) return;
  const auto& own = mounts[static_cast<std::size_t>(group.rank())];
  const bool is_first = std::ranges::find(mounts, own) - mounts.begin() == group.rank();
  const auto name = ".probe." + start + ".0.tmp";  // the name of a temporary file, which a folder removes when claimed
  constexpr std::string_view kText = "all ranks find this file\n";
  const auto remove_on_rank_zero = [&] {
    if (group.rank() != 0) return;
    try {
      storage.remove(name);
    } catch (const Error&) {  // the file that is left does no harm
    }
  };
  on_rank_zero(group, Errc::storage, [&] { storage.write(name, std::array{bytes_of(kText)}); });
  try {
    on_every_rank(group, Errc::storage, [&] {
      if (own == mounts.front() || !is_first) return true;
      const auto who = "rank " + std::to_string(group.rank()) + " on " + host_name();
      const auto with_rank = [&](const char* cannot, const auto& body) {
        try {
          return body();
        } catch (const Error& error) {
          throw Error{error.code(), who + cannot + storage.full_name("")}.with("cause", error.what());
        }
      };
      if (with_rank(" cannot read from ", [&] { return storage.read_text(name, kText.size()); }) != kText)
        throw Error{Errc::storage, who + " does not find " + storage.full_name(name) +
                                       ", which rank 0 has just written: choose a training.save_dir that all machines "
                                       "share, and check that it is mounted there"};
      with_rank(" cannot write to ", [&] { storage.prepare(); });
      return true;
    });
  } catch (const Error&) {
    remove_on_rank_zero();
    throw;
  }
  remove_on_rank_zero();
}

}  // namespace ddpxx
