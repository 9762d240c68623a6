// ddpxx/comm/shared_memory.hpp — collectives of ranks on one host, through memory that they share.
#pragma once

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/meeting.hpp>

namespace ddpxx {

/// Connects the ranks that have met in `meeting` through shared memory, and the parts of the group likewise. The
/// tensors are on the CPU.
/// Ranks   Collective.
/// Errors  `config` on all ranks if they cannot share memory: they are on several hosts, are in containers that do not
///         see each other's processes, belong to several users, or the system refuses memory or another thread; `peer`
///         if a rank does not come in time.
Group connect_shared_memory(const Meeting& meeting);

/// Connects the ranks through shared memory, or over Gloo if they cannot share memory; rank 0 then logs the reason.
/// Ranks   Collective.
/// Errors  `peer`: those of `connect_gloo`, and if a rank does not come in time.
Group connect_on_one_host(const Meeting& meeting);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/shared_memory_inl.hpp>
#endif
