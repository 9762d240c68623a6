// src/interop.cpp — the part of ddpxx::core that comes from the room interop/: see ddpxx/core/inline.hpp.
#include <ddpxx/interop/model_file_inl.hpp>
#include <ddpxx/interop/pt_file_inl.hpp>
#include <ddpxx/interop/state_dicts_inl.hpp>
#include <ddpxx/interop/torch_state_inl.hpp>
