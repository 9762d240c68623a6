// ddpxx/comm/nccl.hpp — collectives between GPUs: the NCCL backend of LibTorch. Needs the component ddpxx::cuda.
#pragma once

#include <exception>
#include <utility>

#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/rendezvous.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// Connects the ranks that have met in `meeting` over NCCL; this rank uses `device`. The communicator is made at once,
/// so that a wrong set-up causes an error here and not in the first step.
/// Ranks   Collective. Each rank has a GPU of its own.
/// Errors  `peer` with NCCL's own text.
inline Group connect_nccl(const Meeting& meeting, at::Device device) {
  try {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = meeting.collective_timeout;
    auto backend =
        c10::make_intrusive<c10d::ProcessGroupNCCL>(meeting.store, meeting.rank, meeting.world_size, options);
    backend->setBoundDeviceId(device);
    backend->eagerConnectSingleDevice(device);
    return Group{std::move(backend), meeting.store, device,
                 [meeting, device](c10::intrusive_ptr<c10d::Store> store, int rank, int size) {
                   return connect_nccl(meeting.part(std::move(store), rank, size), device);
                 }};
  } catch (const std::exception& cause) {
    throw Error{Errc::peer, "the ranks met but cannot reach each other over NCCL"}
        .with("rank", meeting.rank)
        .with("device", device.str())
        .with("cause", first_line(cause));
  }
}

}  // namespace ddpxx
