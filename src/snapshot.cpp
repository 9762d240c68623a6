// src/snapshot.cpp — the part of ddpxx::core that comes from the room snapshot/: see ddpxx/core/inline.hpp.
#include <ddpxx/snapshot/load_model_inl.hpp>
#include <ddpxx/snapshot/manifest_inl.hpp>
#include <ddpxx/snapshot/quotes_inl.hpp>
#include <ddpxx/snapshot/retention_inl.hpp>
#include <ddpxx/snapshot/safetensors_header_inl.hpp>
#include <ddpxx/snapshot/safetensors_inl.hpp>
#include <ddpxx/snapshot/shard_inl.hpp>
#include <ddpxx/snapshot/shard_reader_inl.hpp>
#include <ddpxx/snapshot/snapshot_choice_inl.hpp>
#include <ddpxx/snapshot/snapshot_facts_inl.hpp>
#include <ddpxx/snapshot/snapshot_in_memory_inl.hpp>
#include <ddpxx/snapshot/snapshots_inl.hpp>
#include <ddpxx/snapshot/start_name_inl.hpp>
