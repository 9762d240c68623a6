// ddpxx/comm/unused_gpu.hpp — why a program computes on the CPU of a host that has a GPU.
#pragma once

#include <filesystem>
#include <string>

#include <ddpxx/core/inline.hpp>

namespace ddpxx::detail {

/// A sentence for a user whose program has chosen the CPU; empty where the host shows no GPU of NVIDIA, and where
/// CUDA_VISIBLE_DEVICES hides all of them. `is_linked` tells whether the program has the component ddpxx::cuda, and
/// `root` is the folder that holds dev/ and proc/.
std::string unused_gpu_text(bool is_linked, const std::filesystem::path& root = "/");

}  // namespace ddpxx::detail

#ifndef DDPXX_CORE
#include <ddpxx/comm/unused_gpu_inl.hpp>
#endif
