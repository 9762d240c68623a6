// ddpxx/comm/connect_inl.hpp — the definitions of connect.hpp.
#pragma once

#include <charconv>
#include <csignal>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <ddpxx/comm/backend.hpp>
#include <ddpxx/comm/backend_log.hpp>
#include <ddpxx/comm/connect.hpp>
#include <ddpxx/comm/gloo.hpp>
#include <ddpxx/comm/hosts.hpp>
#include <ddpxx/comm/rendezvous.hpp>
#include <ddpxx/comm/shared_memory.hpp>
#include <ddpxx/comm/tensor_allocator.hpp>
#include <ddpxx/comm/thread_share.hpp>
#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/heap.hpp>
#include <ddpxx/core/ignore_signal.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/program_frame.hpp>

namespace ddpxx {

DDPXX_INLINE Address parse_address(std::string_view text) {
  const auto wrong = [&] {
    return Error{Errc::peer, "\"" + harmless(text) + "\" is not an address; expected tcp://HOST:PORT, port 1 to 65535"};
  };
  constexpr std::string_view kScheme = "tcp://";
  if (!text.starts_with(kScheme)) throw wrong();
  const auto rest = text.substr(kScheme.size());
  const auto colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0) throw wrong();
  auto host = rest.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty()) throw wrong();
  const auto digits = rest.substr(colon + 1);
  int port = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (status != std::errc{} || end != digits.data() + digits.size() || port < 1 || port > 65535) throw wrong();
  return {std::string{host}, static_cast<std::uint16_t>(port)};
}

DDPXX_INLINE Group detail::connect_ranks(std::string_view address, const RankInfo& rank_info,
                                         const ConnectOptions& options, ConnectGPUs connect_gpus) {
  Descriptor listener{options.listening_socket};  // closes it also where this function fails before the ranks meet
  check(rank_info);
  const auto backend = backend_for(options.backend, options.device);
  if (ProgramFrame::exists()) {
    if (options.local_world_known) share_cores(rank_info.local_world_size);
    if (options.device.is_cpu()) {
      keep_freed_blocks();
      use_tensor_allocator();
    }
  }
  if (rank_info.world_size.value == 1) return Group{{}, {}, options.device};
  const auto [host, port] = parse_address(address);
  if (ProgramFrame::exists()) {
    quiet_backend_log(backend);
    ignore_signal(SIGPIPE);
  }
  const auto meeting = meet_with(std::move(listener), host, port, rank_info, options);
  if (ProgramFrame::exists() && !options.local_world_known)
    share_cores(meeting.ranks_here > 0 ? LocalWorldSize{meeting.ranks_here} : rank_info.local_world_size);
  if (meeting.one_memory) return connect_on_one_host(meeting);
  if (meeting.ranks_of_host > 0) return connect_hosts(meeting);
  if (meeting.in_containers)
    Log{meeting.rank}.info(
        "the ranks communicate over Gloo, since they cannot share memory: some are on one machine, but in containers "
        "that do not see each other's processes");
  if (backend == Backend::gloo) return connect_gloo(meeting, options.device);
  if (backend == Backend::shared_memory) return connect_shared_memory(meeting);
  if (connect_gpus == nullptr)
    throw Error{Errc::config, "device " + options.device.str() +
                                  " needs NCCL: build with the component ddpxx::cuda, or set comm.backend to gloo"};
  return connect_gpus(meeting, options.device);
}

}  // namespace ddpxx
