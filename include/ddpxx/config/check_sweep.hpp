// ddpxx/config/check_sweep.hpp — checks the configuration of every job of a sweep before the first one starts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ddpxx/config/choose_recorded.hpp>
#include <ddpxx/config/config_struct.hpp>
#include <ddpxx/config/parse_options.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/sweep.hpp>

namespace ddpxx {

namespace detail {

/// The problems of one job, in the words of parse_config. `config` holds its defaults.
std::vector<std::string> problems_of_job(const ConfigTable& table, void* config, const Sweep& sweep,
                                         const SweepJob& job, const ParseOptions& options,
                                         const RecordedChoice& recorded);

/// Throws if one of the jobs has problems.
void refuse_failing_jobs(const Sweep& sweep,
                         const std::function<std::vector<std::string>(const SweepJob&)>& problems_of);

}  // namespace detail

/// Refuses a sweep if the configuration of one of its jobs has a problem. For a program that runs its sweep itself:
///
///     if (const auto sweep = read_sweep(argc, argv, table_of<MyConfig>())) {
///       check_sweep<MyConfig>(*sweep, options);
///       return run_sweep(*sweep, own_command(argv[0]));
///     }
///
/// Errors  `config`, naming each problem with the first job that has it.
template <ConfigStruct Config>
void check_sweep(const Sweep& sweep, const ParseOptions& options, const ChooseRecorded<Config>& recorded = {}) {
  detail::refuse_failing_jobs(sweep, [&](const SweepJob& job) {
    Config config{};
    GivenConfig<Config> given;
    return detail::problems_of_job(table_of<Config>(), &config, sweep, job, options,
                                   detail::recorded_choice(given, recorded));
  });
}

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/config/check_sweep_inl.hpp>
#endif
