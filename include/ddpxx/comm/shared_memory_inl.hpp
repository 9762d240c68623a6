// ddpxx/comm/shared_memory_inl.hpp — the definitions of shared_memory.hpp.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <sys/types.h>
#include <unistd.h>
#include <utility>
#include <variant>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <ddpxx/comm/collective_queue.hpp>
#include <ddpxx/comm/gloo.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/meeting.hpp>
#include <ddpxx/comm/peer_processes.hpp>
#include <ddpxx/comm/shared_collectives.hpp>
#include <ddpxx/comm/shared_memory.hpp>
#include <ddpxx/comm/shared_memory_backend.hpp>
#include <ddpxx/comm/shared_segment.hpp>
#include <ddpxx/comm/thread_limit.hpp>
#include <ddpxx/comm/thread_share.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/namespace_name.hpp>

namespace ddpxx {

namespace detail {

/// Why ranks cannot share memory; equal on all of them.
struct NoSharedMemory {
  std::string reason;
};

/// Sends a text to all ranks of a meeting, and returns those of all.
inline std::vector<std::string> exchange_texts(const Meeting& meeting, const std::string& key,
                                               const std::string& text) {
  std::vector<std::string> keys, texts;
  for (int rank = 0; rank < meeting.world_size; ++rank) keys.push_back(key + std::to_string(rank));
  auto& store = *meeting.store;
  store.set(keys[static_cast<std::size_t>(meeting.rank)], "=" + text);  // some stores refuse empty values
  store.wait(keys, meeting.time_to_connect());
  for (const auto& value : store.multiGet(keys)) texts.emplace_back(value.begin() + 1, value.end());
  return texts;
}

/// The ranks of a meeting on their way to shared memory. They exchange texts through the store: no rank goes on alone.
class SharedMemoryMeeting {
 public:
  explicit SharedMemoryMeeting(const Meeting& meeting) : meeting_{&meeting} {}

  /// The queue of this rank's collectives, or the reason why at least one rank has none.
  /// Errors  as those of the store.
  std::variant<std::shared_ptr<CollectiveQueue>, NoSharedMemory> connect() {
    std::string trouble;
    if (meeting_->rank == 0) trouble = trouble_of([&] { segment_.emplace(SharedSegment::make(bytes())); });
    const auto hosts = exchange_texts(*meeting_, "shm/host",
                                      namespace_name("pid") + ' ' + std::to_string(::getpid()) + ' ' +
                                          std::to_string(segment_ ? segment_->fd() : -1) + ' ' +
                                          std::to_string(meeting_->rank_in_run()));
    if (const auto reason = read(hosts); !reason.empty()) return NoSharedMemory{reason};
    if (trouble.empty()) trouble = trouble_of([&] { open(); });
    // The segment of rank 0 stays open until all have opened it.
    const auto troubles = exchange_texts(*meeting_, "shm/open", trouble);
    for (std::size_t rank = 0; rank < troubles.size(); ++rank)
      if (!troubles[rank].empty()) return NoSharedMemory{name_of(rank) + ": " + troubles[rank]};
    segment_->close();
    return CollectiveQueue::make(std::move(*segment_), meeting_->rank, meeting_->world_size, std::move(processes_),
                                 spin(), names_);
  }

 private:
  std::string name_of(std::size_t rank) const { return "rank " + std::to_string(names_[rank]); }
  std::size_t bytes() const { return SharedCollectives::memory_bytes(meeting_->world_size); }

  /// Two threads that wait on one core for each other must not spin. The ranks of other parts are on the cores too.
  std::chrono::nanoseconds spin() const {
    return count_cores().job >= meeting_->run_size.value_or(meeting_->world_size) ? std::chrono::microseconds{50}
                                                                                  : std::chrono::microseconds{1};
  }

  template <class Body>
  static std::string trouble_of(Body&& body) {
    try {
      body();
      return {};
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  /// Reads where the ranks are; returns the reason why they cannot share memory, or an empty text.
  std::string read(const std::vector<std::string>& texts) {
    std::string first;
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
      std::string host;
      pid_t process = 0;
      int descriptor = -1, name = 0;
      std::istringstream{texts[rank]} >> host >> process >> descriptor >> name;
      names_.push_back(name);
      if (rank == 0) {
        first = host;
        descriptor_ = descriptor;
      }
      if (host != first || host.starts_with('/') || host.ends_with('/'))
        return name_of(rank) + " does not see the processes of " + name_of(0) +
               ": it is on another host or in another container";
      processes_of_ranks_.push_back(process);
    }
    return {};
  }

  void open() {
    if (!segment_) segment_.emplace(SharedSegment::open(processes_of_ranks_.front(), descriptor_, bytes()));
    // Each rank takes the memory that it writes to first, so that the memory is near the rank's cores.
    const auto part = SharedCollectives::part_of(meeting_->rank, meeting_->world_size);
    segment_->reserve(part.begin, part.bytes);
    processes_ = PeerProcesses{processes_of_ranks_};
    check_threads(1, "a group over shared memory");
  }

  const Meeting* meeting_;
  std::optional<SharedSegment> segment_;
  int descriptor_ = -1;                    ///< Rank 0's descriptor of the segment.
  std::vector<pid_t> processes_of_ranks_;  ///< The numbers of the ranks' processes.
  std::vector<int> names_;                 ///< The numbers of the ranks among all ranks of the run, for texts.
  PeerProcesses processes_;
};

/// Does what `connect_shared_memory` does, but returns the reason if the ranks cannot share memory. `connect_part`
/// connects a part of the group.
inline std::variant<Group, NoSharedMemory> try_shared_memory(const Meeting& meeting,
                                                             Group (*connect_part)(const Meeting&)) {
  try {
    auto connected = SharedMemoryMeeting{meeting}.connect();
    if (auto* obstacle = std::get_if<NoSharedMemory>(&connected)) return std::move(*obstacle);
    const auto& queue = std::get<std::shared_ptr<CollectiveQueue>>(connected);
    auto backend = c10::make_intrusive<SharedMemoryBackend>(meeting.rank, meeting.world_size, queue);
    // A number that belonged to a rank when it was sent may be another process's by now. A rank that comes to the
    // barrier has lived longer than all numbers were needed.
    backend->setTimeout(meeting.time_to_connect());
    backend->barrier(c10d::BarrierOptions{})->wait();
    backend->setTimeout(meeting.collective_timeout);
    return Group{std::move(backend), meeting.store, at::kCPU,
                 [meeting, connect_part](c10::intrusive_ptr<c10d::Store> store, int rank, int size) {
                   return connect_part(meeting.part(std::move(store), rank, size));
                 }};
  } catch (Error& error) {
    throw error.with("rank", meeting.rank_in_run());
  } catch (const std::exception& cause) {
    throw Error{Errc::peer, "the ranks met at " + meeting.host +
                                " but did not all come to share memory: a rank died meanwhile, or is very slow"}
        .with("rank", meeting.rank_in_run())
        .with("cause", harmless(first_line(cause)));
  }
}

}  // namespace detail

DDPXX_INLINE Group connect_on_one_host(const Meeting& meeting) {
  auto connected = detail::try_shared_memory(meeting, connect_on_one_host);
  if (auto* group = std::get_if<Group>(&connected)) return std::move(*group);
  if (!meeting.number)
    Log{meeting.rank}.info("the ranks communicate over Gloo, since they cannot share memory: " +
                           std::get<detail::NoSharedMemory>(connected).reason);
  return connect_gloo(meeting);
}

DDPXX_INLINE Group connect_shared_memory(const Meeting& meeting) {
  auto connected = detail::try_shared_memory(meeting, connect_shared_memory);
  if (auto* group = std::get_if<Group>(&connected)) return std::move(*group);
  meeting.wait_for_readers("shm/read");
  throw Error{Errc::config, "the ranks cannot share memory, as comm.backend=shm asks: " +
                                harmless(std::get<detail::NoSharedMemory>(connected).reason) +
                                "; set comm.backend to auto or gloo"};
}

}  // namespace ddpxx
