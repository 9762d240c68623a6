// ddpxx/comm/gloo.hpp — collectives over TCP: the Gloo backend of LibTorch.
#pragma once

#include <c10/core/Device.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/meeting.hpp>

namespace ddpxx {

/// Connects the ranks that have met in `meeting` over Gloo; the tensors of this rank are on `device`. The group
/// connects a part of its ranks likewise, by what Group's constructor gets as its fourth argument:
///
///     [meeting, device](c10::intrusive_ptr<c10d::Store> store, int rank, int size) {
///       return connect_gloo(meeting.part(std::move(store), rank, size), device);
///     }
///
/// Ranks   Collective.
/// Errors  `peer` if they cannot reach each other, where GLOO_SOCKET_IFNAME overrides the interface that is chosen, or
///         if the system has no more threads.
Group connect_gloo(const Meeting& meeting, at::Device device = at::kCPU);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/gloo_inl.hpp>
#endif
