// ddpxx/comm/hosts.hpp — collectives of ranks on several hosts, each with several ranks: through memory within a host,
// over Gloo between hosts.
#pragma once

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/meeting.hpp>

namespace ddpxx {

/// Connects ranks on several hosts (`Meeting::ranks_of_host`), so that the ranks of a host share memory and send the
/// bytes of an all-reduce, a reduce-scatter or an all-gather to other hosts once, not once for each rank. Ranks that
/// cannot share memory communicate over Gloo alone, and rank 0 then logs the reason. A part of the group shares memory
/// if all of its ranks can, and communicates over Gloo otherwise.
///
/// Ranks   Collective.
/// Errors  `peer`: those of `connect_gloo`, and if a rank does not come in time.
Group connect_hosts(const Meeting& meeting);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/hosts_inl.hpp>
#endif
