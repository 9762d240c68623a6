// ddpxx/comm/rendezvous.hpp — ranks meet, before a backend connects them.
#pragma once

#include <cstdint>
#include <string>

#include <ddpxx/comm/connect_options.hpp>
#include <ddpxx/comm/meeting.hpp>
#include <ddpxx/comm/rank_info.hpp>
#include <ddpxx/core/descriptor.hpp>

namespace ddpxx {

/// Meets all ranks of `rank_info.world_size` at host:port; rank 0 hosts the store unless an agent does.
/// Ranks   Collective.
/// Errors  `peer` within `join_timeout`: port in use, a name that does not resolve, no program or a silent program at
///         the address, another run's store, ranks that never came or ended early (named), a rank that came twice,
///         ranks that disagree about the world's size, the kind of device or the backend; `peer` also for a RankInfo
///         that check() refuses. `config` if two ranks use one GPU, or if `python_ranks` is set with another backend
///         than Gloo. With ranks that are Python programs, only errors about the address and the store are found, not
///         those about other ranks.
Meeting meet(const std::string& host, std::uint16_t port, const RankInfo& rank_info, const ConnectOptions& options);

namespace detail {

/// Does what `meet` does. `listener` is the listening socket of `options`, or none.
Meeting meet_with(Descriptor listener, const std::string& host, std::uint16_t port, const RankInfo& rank_info,
                  const ConnectOptions& options);

}  // namespace detail

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/rendezvous_inl.hpp>
#endif
