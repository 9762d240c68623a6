// ddpxx/comm/meeting_inl.hpp — the definitions of meeting.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <ddpxx/comm/meeting.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

DDPXX_INLINE Meeting Meeting::part(c10::intrusive_ptr<c10d::Store> part_store, int part_rank, int part_size) const {
  auto meeting = *this;
  meeting.store = std::move(part_store);
  meeting.rank = part_rank;
  meeting.world_size = part_size;
  meeting.ranks_of_host = 0;
  meeting.deadline.reset();
  meeting.number = rank_in_run();
  meeting.run_size = run_size.value_or(world_size);
  return meeting;
}

DDPXX_INLINE std::chrono::milliseconds Meeting::time_to_connect() const {
  if (!deadline) return join_timeout;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - std::chrono::steady_clock::now());
  return std::min(join_timeout, std::max<std::chrono::milliseconds>(left, std::chrono::seconds{10}));
}

DDPXX_INLINE void Meeting::wait_for_readers(const std::string& key) const noexcept {
  constexpr std::chrono::seconds kPatience{5};
  try {
    std::vector<std::string> keys;
    for (int reader = 0; reader < world_size; ++reader) keys.push_back(key + std::to_string(reader));
    store->set(keys[static_cast<std::size_t>(rank)], "yes");
    store->wait(keys, kPatience);
  } catch (const std::exception&) {  // the store has ended with rank 0, or a rank has died
  }
}

}  // namespace ddpxx
