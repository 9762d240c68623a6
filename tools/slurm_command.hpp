// slurm_command.hpp — `ddpxx slurm [KEY=VALUE ...] -- PROGRAM [ARGUMENTS]` prints a script for Slurm's sbatch.
#pragma once

#include <cmath>
#include <cstdint>
#include <iostream>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/config/sweep.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/sweep/shell_word.hpp>
#include <ddpxx/launch/sweep/slurm_array.hpp>

#include "argument_numbers.hpp"
#include "job_words.hpp"

struct SlurmArguments {
  std::string job_name = "ddpxx";
  std::int64_t nodes = 1;
  std::int64_t ranks_per_node = 1;
  std::int64_t gpus_per_node = 0;
  std::int64_t cpus_per_rank = 0;
  std::string time = {};
  std::string partition = {};
  std::string account = {};
  std::string output = {};
  double signal_before = 60;
  bool requeue = true;

  static constexpr auto describe() {
    using namespace ddpxx;
    constexpr double kMaxSignalTime = 65535;  // sbatch's own limit
    return fields(
        field<&SlurmArguments::job_name>("Name of the job"),
        field<&SlurmArguments::nodes>("Number of nodes", at_least(1)),
        field<&SlurmArguments::ranks_per_node>("Number of ranks on each node", at_least(1), Unit::ranks),
        field<&SlurmArguments::gpus_per_node>("GPUs of each node; 0 asks for none", at_least(0)),
        field<&SlurmArguments::cpus_per_rank>("Cores of each rank; 0 leaves that to Slurm", at_least(0)),
        field<&SlurmArguments::time>("Time limit in Slurm's form, such as 4:00:00 or 2-0; empty: the partition's"),
        field<&SlurmArguments::partition>("Partition; empty: the default one"),
        field<&SlurmArguments::account>("Account that is charged; empty: the user's own"),
        field<&SlurmArguments::output>(
            "File for the output, such as %x-%j.txt, in a folder that exists; empty: Slurm's slurm-%j.out"),
        field<&SlurmArguments::signal_before>(
            "How long before the time limit the ranks get SIGUSR1, upon which they save "
            "and end with 75; Slurm may send it up to a minute earlier; 0 sends none",
            between(0.0, kMaxSignalTime), Unit::seconds),
        field<&SlurmArguments::requeue>(
            "Put the job back into the queue when it has stopped and saved (exit code 75)"));
  }
};

/// Errors  `config` for a text that is no time limit by the manual of Slurm.
/// Source  Slurm, sbatch(1), --time.
inline void check_time(const std::string& time) {
  static const std::regex kForm{R"(\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|UNLIMITED|INFINITE)", std::regex::icase};
  if (!time.empty() && !std::regex_match(time, kForm))
    throw ddpxx::Error{ddpxx::Errc::config, "time=" + time +
                                                " is not a time limit of Slurm: write MINUTES, HOURS:MINUTES:SECONDS "
                                                "or DAYS-HOURS, such as 30, 4:00:00 or 2-0"};
}

/// The lines of the script up to the first command.
inline std::string slurm_head(const SlurmArguments& job) {
  check_time(job.time);
  std::ostringstream text;
  text << "#!/bin/bash\n# Written by `ddpxx slurm`; sbatch FILE starts it.\n";
  const auto ask = [&](const char* option, const auto& value) {
    text << "#SBATCH --" << option << '=' << value << '\n';
  };
  const auto ask_if_set = [&](const char* option, const std::string& key, const std::string& value) {
    check_word(key, value);
    if (!value.empty()) ask(option, value);
  };
  ask_if_set("job-name", "job_name", job.job_name);
  ask("nodes", job.nodes);
  ask("ntasks-per-node", job.ranks_per_node);
  if (job.gpus_per_node > 0) ask("gpus-per-node", job.gpus_per_node);
  if (job.cpus_per_rank > 0) ask("cpus-per-task", job.cpus_per_rank);
  ask_if_set("time", "time", job.time);
  ask_if_set("partition", "partition", job.partition);
  ask_if_set("account", "account", job.account);
  ask_if_set("output", "output", job.output);
  // Without `B:` the ranks get the signal, and the script does not.
  if (const double seconds = std::ceil(job.signal_before); seconds > 0)
    ask("signal", "USR1@" + std::to_string(static_cast<std::int64_t>(seconds)));
  text << "#SBATCH --" << (job.requeue ? "requeue" : "no-requeue") << '\n';
  return text.str();
}

/// The lines behind the step, whose exit code is in `code`. `id` is the job's number as the shell writes it.
inline std::string slurm_end(const SlurmArguments& job, const std::string& id) {
  const std::string requeue =
      "# 75: the ranks were asked to stop and have saved; the job resumes from there.\n"
      "if ((code == 75)); then scontrol requeue \"" +
      id + "\"; fi\n";
  return (job.requeue ? requeue : std::string{}) + "exit \"$code\"\n";
}

inline void slurm_command(int argc, char** argv) {
  const auto words = read_job_words(argc, argv);
  const auto job = ddpxx::parse_config<SlurmArguments>(words.num_settings(), words.settings.data(),
                                                       {.program = "ddpxx slurm",
                                                        .more_usage = "-- PROGRAM [ARGUMENTS]",
                                                        .argument_numbers = argument_numbers(2, words.num_settings())});
  words.check("ddpxx slurm");
  const auto head = slurm_head(job);
  const std::string step = "srun --kill-on-bad-exit=1 ";
  const auto& program = words.program;
  if (const auto sweep = ddpxx::read_sweep(program.front(), {program.begin() + 1, program.end()})) {
    if (sweep->options.action == ddpxx::SweepAction::print)
      throw ddpxx::Error{ddpxx::Errc::config,
                         "--dry-run: ddpxx slurm starts nothing, and its script would run the jobs; leave it out, or "
                         "list the jobs by " +
                             ddpxx::detail::shell_line(program)};
    // The SLURM_JOB_ID of one element is that of the array, and would requeue all elements.
    const auto end = slurm_end(job, "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}");
    std::cout << ddpxx::detail::slurm_array_script(*sweep, head, step + ddpxx::detail::shell_word(program.front()),
                                                   end);
    return;
  }
  std::cout << head << "#SBATCH --open-mode=append\n\n"
            << "if [[ -n $SLURM_CPUS_PER_TASK ]]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi\n"
            << step << ddpxx::detail::shell_line(program) << "\ncode=$?\n"
            << slurm_end(job, "$SLURM_JOB_ID");
}
