// src/comm.cpp — the part of ddpxx::core that comes from the room comm/: see ddpxx/core/inline.hpp.
#include <ddpxx/comm/collectives_inl.hpp>
#include <ddpxx/comm/connect_inl.hpp>
#include <ddpxx/comm/connect_options_inl.hpp>
#include <ddpxx/comm/device_inl.hpp>
#include <ddpxx/comm/gloo_inl.hpp>
#include <ddpxx/comm/gpu_name_inl.hpp>
#include <ddpxx/comm/group_inl.hpp>
#include <ddpxx/comm/hosts_inl.hpp>
#include <ddpxx/comm/link_time_inl.hpp>
#include <ddpxx/comm/on_every_rank_inl.hpp>
#include <ddpxx/comm/on_rank_zero_inl.hpp>
#include <ddpxx/comm/pending_inl.hpp>
#include <ddpxx/comm/recording_inl.hpp>
#include <ddpxx/comm/rendezvous_inl.hpp>
#include <ddpxx/comm/shared_memory_inl.hpp>
#include <ddpxx/comm/text_inl.hpp>
#include <ddpxx/comm/unused_gpu_inl.hpp>
