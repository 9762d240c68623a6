// src/launch.cpp — the part of ddpxx::core that comes from the room launch/ and needs no LibTorch: see
// ddpxx/core/inline.hpp.
#include <ddpxx/launch/error_file_inl.hpp>
#include <ddpxx/launch/program_inl.hpp>
#include <ddpxx/launch/spawn_inl.hpp>
#include <ddpxx/launch/sweep_command_inl.hpp>
#include <ddpxx/launch/sweep_runner_inl.hpp>
#include <ddpxx/launch/torchrun_environment_inl.hpp>
