// ddpxx/comm/hosts_inl.hpp — the definitions of hosts.hpp.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <ddpxx/comm/collective_queue.hpp>
#include <ddpxx/comm/gloo.hpp>
#include <ddpxx/comm/gloo_inl.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/hosts.hpp>
#include <ddpxx/comm/hosts_backend.hpp>
#include <ddpxx/comm/meeting.hpp>
#include <ddpxx/comm/shared_collectives.hpp>
#include <ddpxx/comm/shared_memory.hpp>
#include <ddpxx/comm/shared_memory_inl.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>

namespace ddpxx {

namespace detail {

/// The meeting of some ranks of `meeting`, during the same time.
inline Meeting part_of(const Meeting& meeting, const std::string& name, int rank, int size) {
  auto part = meeting.part(c10::make_intrusive<c10d::PrefixStore>(name, meeting.store), rank, size);
  part.deadline = meeting.deadline;
  return part;
}

/// The collectives of the ranks of this host; or the reason why those of at least one host cannot share memory, equal
/// on all ranks.
inline std::variant<std::shared_ptr<CollectiveQueue>, NoSharedMemory> connect_host(const Meeting& meeting) {
  const auto host = meeting.rank / meeting.ranks_of_host;
  auto of_host =
      part_of(meeting, "host" + std::to_string(host), meeting.rank % meeting.ranks_of_host, meeting.ranks_of_host);
  of_host.run_size = meeting.ranks_of_host;  // those that share the cores of this host
  auto connected = SharedMemoryMeeting{of_host}.connect();
  const auto* obstacle = std::get_if<NoSharedMemory>(&connected);
  for (const auto& reason : exchange_texts(meeting, "hosts/obstacle", obstacle != nullptr ? obstacle->reason : ""))
    if (!reason.empty()) return NoSharedMemory{reason};
  // See try_shared_memory(): each rank of the host has come to share memory before its number may be another process's.
  auto& queue = *std::get<std::shared_ptr<CollectiveQueue>>(connected);
  queue.set_timeout(of_host.time_to_connect());
  queue.wait(*queue.start([](SharedCollectives& shared) { shared.barrier(); }), std::nullopt);
  return connected;
}

}  // namespace detail

DDPXX_INLINE Group connect_hosts(const Meeting& meeting) {
  try {
    auto connected = detail::connect_host(meeting);
    if (const auto* obstacle = std::get_if<detail::NoSharedMemory>(&connected)) {
      Log{meeting.rank}.info("the ranks of each host communicate over Gloo, since they cannot share memory: " +
                             obstacle->reason);
      return connect_gloo(meeting);
    }
    const auto hosts = meeting.world_size / meeting.ranks_of_host;
    auto all = detail::gloo_backend(meeting);
    auto across =
        detail::gloo_backend(detail::part_of(meeting, "across" + std::to_string(meeting.rank % meeting.ranks_of_host),
                                             meeting.rank / meeting.ranks_of_host, hosts));
    auto backend = c10::make_intrusive<detail::HostsBackend>(
        meeting.rank, meeting.world_size, std::get<std::shared_ptr<detail::CollectiveQueue>>(std::move(connected)),
        std::move(across), std::move(all));
    backend->setTimeout(meeting.collective_timeout);
    return Group{std::move(backend), meeting.store, at::kCPU,
                 [meeting](c10::intrusive_ptr<c10d::Store> store, int rank, int size) {
                   auto part = meeting.part(std::move(store), rank, size);
                   part.run_size = meeting.ranks_of_host;  // those that share the cores of this host
                   return connect_on_one_host(part);
                 }};
  } catch (const Error&) {  // it names the rank
    throw;
  } catch (const std::exception& cause) {
    throw Error{Errc::peer,
                "the ranks met at " + meeting.host +
                    " but did not all come to share the memory of their hosts: a rank died meanwhile, or is "
                    "very slow"}
        .with("rank", meeting.rank)
        .with("cause", harmless(first_line(cause)));
  }
}

}  // namespace ddpxx
