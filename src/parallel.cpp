// src/parallel.cpp — the part of ddpxx::core that comes from the room parallel/: see ddpxx/core/inline.hpp.
#include <ddpxx/parallel/data_parallel_inl.hpp>
#include <ddpxx/parallel/fsdp_inl.hpp>
#include <ddpxx/parallel/fsdp_unit_inl.hpp>
#include <ddpxx/parallel/gradient_shards_inl.hpp>
#include <ddpxx/parallel/hooks/batched_power_sgd_inl.hpp>
#include <ddpxx/parallel/hooks/power_sgd_inl.hpp>
#include <ddpxx/parallel/layer_units_inl.hpp>
#include <ddpxx/parallel/reducer_inl.hpp>
#include <ddpxx/parallel/replicas_inl.hpp>
#include <ddpxx/parallel/same_model_inl.hpp>
#include <ddpxx/parallel/sync_batch_norm_inl.hpp>
