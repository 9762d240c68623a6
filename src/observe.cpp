// src/observe.cpp — the part of ddpxx::core that comes from the room observe/: see ddpxx/core/inline.hpp.
#include <ddpxx/observe/csv_file_inl.hpp>
#include <ddpxx/observe/memory_inl.hpp>
#include <ddpxx/observe/metrics_file_inl.hpp>
#include <ddpxx/observe/progress_inl.hpp>
#include <ddpxx/observe/row_file_inl.hpp>
#include <ddpxx/observe/run_report_inl.hpp>
#include <ddpxx/observe/slow_ranks_inl.hpp>
#include <ddpxx/observe/tensorboard_inl.hpp>
