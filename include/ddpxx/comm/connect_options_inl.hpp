// ddpxx/comm/connect_options_inl.hpp — the definitions of connect_options.hpp.
#pragma once

#include <chrono>
#include <cstdint>
#include <sstream>

#include <ddpxx/comm/connect_config.hpp>
#include <ddpxx/comm/connect_options.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

namespace detail {

inline std::chrono::milliseconds timeout_of(const char* name, double seconds) {
  if (seconds >= ConnectConfig::kMinTimeout && seconds <= ConnectConfig::kMaxTimeout)
    return std::chrono::milliseconds{static_cast<std::int64_t>(seconds * 1000)};
  std::ostringstream text;
  text << name << " is " << seconds << " s; it must be " << ConnectConfig::kMinTimeout << " to "
       << ConnectConfig::kMaxTimeout << " s";
  throw Error{Errc::config, text.str()};
}

}  // namespace detail

DDPXX_INLINE ConnectOptions::ConnectOptions(const ConnectConfig& config, at::Device where)
    : join_timeout{detail::timeout_of("comm.join_timeout", config.join_timeout)},
      collective_timeout{detail::timeout_of("comm.collective_timeout", config.collective_timeout)},
      python_ranks{config.python_ranks},
      device{where},
      backend{config.backend} {}

DDPXX_INLINE Backend backend_for(Backend wish, at::Device device) {
  if (wish == Backend::nccl && device.is_cpu())
    throw Error{Errc::config,
                "comm.backend=nccl: NCCL connects GPUs, but this rank computes on the CPU; set the device to cuda, or "
                "comm.backend to auto or gloo"};
  if (wish == Backend::shared_memory && !device.is_cpu())
    throw Error{Errc::config, "comm.backend=shm: shared memory connects ranks on the CPU, but this rank computes on " +
                                  device.str() + "; set the device to cpu, or comm.backend to auto or gloo"};
  if (wish != Backend::automatic) return wish;
  return device.is_cpu() ? Backend::gloo : Backend::nccl;
}

}  // namespace ddpxx
