// ddpxx/comm/device.hpp — chooses the device on which a rank computes.
#pragma once

#include <optional>
#include <string_view>

#include <c10/core/Device.h>

#include <ddpxx/comm/backend.hpp>
#include <ddpxx/comm/rank_info.hpp>

namespace ddpxx {

namespace detail {

/// The number of the GPU of a rank on a host where `gpus` of them are visible; none if there is none for the rank. If
/// exactly one is visible, the launcher may have given each rank another one (srun --gpus-per-task=1): all take
/// number 0, and over NCCL `meet` refuses two ranks that use one GPU. Over Gloo the ranks of a host share its GPUs.
constexpr std::optional<int> gpu_of(LocalRank local_rank, int gpus, Backend backend) {
  const bool shared = backend == Backend::gloo && gpus > 0;
  const int number = gpus == 1 ? 0 : shared ? local_rank.value % gpus : local_rank.value;
  return number < gpus ? std::optional{number} : std::nullopt;
}

/// The number of GPUs that this program can use. It starts CUDA, which does not survive a fork.
int num_gpus();

}  // namespace detail

/// The device that `wish` names: `cpu`; `cuda`, the only visible GPU or that with this rank's local number; or `auto`,
/// which takes that GPU if the build has CUDA and there is one. A GPU becomes this thread's current device. Where
/// `auto` takes the CPU of a host that shows a GPU, rank 0 logs why. With Backend::gloo several ranks may get one GPU.
/// Errors  `config` for a device that this host or build does not have.
at::Device pick_device(std::string_view wish, const RankInfo& rank_info, Backend backend = Backend::automatic);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/device_inl.hpp>
#endif
