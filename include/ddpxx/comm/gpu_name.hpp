// ddpxx/comm/gpu_name.hpp — the name and the memory of a GPU, for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <c10/core/Device.h>

#include <ddpxx/core/inline.hpp>

namespace ddpxx {

/// The name and the memory of an NVIDIA GPU, as in `NVIDIA H200, 139 GiB`; empty for another device, and where the
/// driver does not tell.
std::string gpu_name(at::Device device);

namespace detail {

std::string gpu_text(std::string_view name, std::uint64_t bytes);

}  // namespace detail

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/gpu_name_inl.hpp>
#endif
