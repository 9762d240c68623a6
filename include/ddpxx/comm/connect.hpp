// ddpxx/comm/connect.hpp — from an address and a place to a group.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <ddpxx/comm/backend_log.hpp>
#include <ddpxx/comm/gloo.hpp>
#ifdef USE_C10D_NCCL  // set by the component ddpxx::cuda
#include <ddpxx/comm/nccl.hpp>
#endif
#include <ddpxx/comm/pipe_signal_scope.hpp>
#include <ddpxx/comm/rendezvous.hpp>
#include <ddpxx/comm/thread_share.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/program_frame.hpp>

namespace ddpxx {

struct Address {
  std::string host;
  std::uint16_t port = 0;
};

/// Reads `tcp://host:port`; an IPv6 host stands in brackets.
/// Errors  `peer` with the form that is expected.
inline Address parse_address(std::string_view text) {
  const auto wrong = [&] {
    return Error{Errc::peer, "\"" + harmless(text) + "\" is no address; expected tcp://HOST:PORT, port 1 to 65535"};
  };
  constexpr std::string_view kScheme = "tcp://";
  if (!text.starts_with(kScheme)) throw wrong();
  const auto rest = text.substr(kScheme.size());
  const auto colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0) throw wrong();
  auto host = rest.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const auto digits = rest.substr(colon + 1);
  int port = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (status != std::errc{} || end != digits.data() + digits.size() || port < 1 || port > 65535) throw wrong();
  return {std::string{host}, static_cast<std::uint16_t>(port)};
}

/// Joins the group of all ranks of `place` that meet at `address`: over NCCL for `options.device` a GPU, else over
/// Gloo. A world of one needs no address and opens no port. Under `run_program`, where several ranks share a machine,
/// each computes with its share of the cores from now on, unless the user has chosen otherwise (`share_cores`); other
/// processes keep their settings, and call `share_cores` themselves if they want it.
/// Ranks   Collective.
/// Errors  `peer`: see `meet`, `connect_gloo` and `connect_nccl`; `config` for a GPU in a build without CUDA.
inline Group connect(std::string_view address, const Place& place, const ConnectOptions& options = {}) {
  check(place);
  if (ProgramFrame::exists()) share_cores(place.local_world_size);
  if (place.world_size.value == 1) return Group{{}, {}, options.device};
  const auto [host, port] = parse_address(address);
  if (ProgramFrame::exists()) {
    quiet_backend_log();
    ignore_broken_pipes();
  }
  const auto meeting = meet(host, port, place, options);
  if (options.device.is_cpu()) return connect_gloo(meeting);
#ifdef USE_C10D_NCCL
  return connect_nccl(meeting, options.device);
#else
  throw Error{Errc::config, "device " + options.device.str() + " needs NCCL: build with the component ddpxx::cuda"};
#endif
}

}  // namespace ddpxx
