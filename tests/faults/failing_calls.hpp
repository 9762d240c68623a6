// tests/faults/failing_calls.hpp — calls of the system that really fail, or during which the process is really killed.
// For a test that is linked to the library ddpxx_failing_calls; another program gets the library by LD_PRELOAD, and the
// order by the environment.
#pragma once

#include <string>

/// Which calls fail: those on paths that begin with `path`, from the `first` to the `last` of them, counted from 1 over
/// this process and all that it forks.
struct FailingCalls {
  enum class End { error, killed_before, killed_after };

  std::string path;
  long first = 1;
  long last = 0;           ///< 0: no call fails, all are counted.
  End end = End::error;    ///< What happens at such a call.
  int error = 0;           ///< Its errno, where it fails.
  std::string calls = {};  ///< Names such as "read pread"; empty: all.
};

/// From now on, in this process and all that it forks. The calls are open, read, pread, write, pwrite, ftruncate,
/// fsync, flock, close, rename, link, unlink, mkdir and rmdir.
void fail_calls(const FailingCalls& order);

/// The environment variable by which a program of its own gets the order, with the library's path in LD_PRELOAD.
std::string failing_calls_variable(const FailingCalls& order);

/// How many calls there were on the path since fail_calls.
long count_calls();

/// No call fails any more.
void let_calls_succeed();
