// ddpxx/comm/gloo.hpp — collectives over TCP between CPUs: the Gloo backend of LibTorch.
#pragma once

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/rendezvous.hpp>

namespace ddpxx {

/// Connects the ranks that have met in `meeting` over Gloo.
/// Ranks   Collective.
/// Errors  `peer` if they cannot reach each other, where GLOO_SOCKET_IFNAME overrides the interface that is chosen, or
///         if the system has no more threads.
Group connect_gloo(const Meeting& meeting);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/gloo_inl.hpp>
#endif
