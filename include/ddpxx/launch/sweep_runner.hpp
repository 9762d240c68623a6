// ddpxx/launch/sweep_runner.hpp — runs the jobs of a sweep as child processes, and prints their results.
#pragma once

namespace ddpxx {

struct Sweep;
struct SweepCommand;

/// Runs the jobs, prints them, or prints a script for Slurm, as the sweep's options say. Returns the exit code of the
/// program: that of the failed job with the lowest number. If no job failed: 128+n if a signal n that asked the sweep
/// to end has ended a job, 75 if jobs were stopped on request or not started, 4 if a job that ended with 0 has no
/// metric (jobs_without_metric), else 0. The program should end then: signals that ask for an end stay blocked.
/// Errors  `config` or `storage` if the folder cannot be used, holds another sweep, or another sweep runs in it;
///         `config` for jobs on several nodes without a script for Slurm; `peer` if signals cannot be watched;
///         `storage` if the script, or the list of jobs, could not be printed. No job has started then.
int run_sweep(const Sweep& sweep, const SweepCommand& command);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/launch/sweep_runner_inl.hpp>
#endif
