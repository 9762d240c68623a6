// src/train.cpp — the part of ddpxx::core that comes from the room train/: see ddpxx/core/inline.hpp.
#include <ddpxx/train/check_group_device_inl.hpp>
#include <ddpxx/train/chosen_snapshot_inl.hpp>
#include <ddpxx/train/common_settings_inl.hpp>
#include <ddpxx/train/config_hash_inl.hpp>
#include <ddpxx/train/configured_observers_inl.hpp>
#include <ddpxx/train/decay_rule_inl.hpp>
#include <ddpxx/train/deterministic_mode_inl.hpp>
#include <ddpxx/train/gpu_memory_inl.hpp>
#include <ddpxx/train/matrix_owners_inl.hpp>
#include <ddpxx/train/metric_sums_inl.hpp>
#include <ddpxx/train/parameter_groups_inl.hpp>
#include <ddpxx/train/run_folder_inl.hpp>
#include <ddpxx/train/run_state_inl.hpp>
#include <ddpxx/train/same_run_inl.hpp>
#include <ddpxx/train/stop_request_inl.hpp>
#include <ddpxx/train/training_settings_inl.hpp>
#include <ddpxx/train/training_snapshots_inl.hpp>
