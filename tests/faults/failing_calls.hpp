// tests/faults/failing_calls.hpp — system calls that really fail, or that a process really dies in. A test links the
// library ddpxx_failing_calls; another program loads the library by LD_PRELOAD and reads the order from its
// environment.
#pragma once

#include <string>

/// Which calls fail: those on paths that begin with `path`, from number `first` to number `last`, counted from 1 over
/// this process and all that it forks.
struct FailingCalls {
  enum class End { error, killed_before, killed_after };

  std::string path;
  long first = 1;
  long last = 0;           ///< 0: no call fails, all are counted.
  End end = End::error;    ///< What happens at such a call.
  int error = 0;           ///< The errno of a call that fails.
  std::string calls = {};  ///< The affected calls, such as "read pread"; empty: all calls.
};

/// Makes calls fail from now on, in this process and in all that it forks. The calls are open, read, pread, write,
/// pwrite, ftruncate, fsync, flock, close, rename, link, unlink, mkdir and rmdir.
void fail_calls(const FailingCalls& order);

/// The environment variable that gives the order to a program which loads the library by LD_PRELOAD.
std::string failing_calls_variable(const FailingCalls& order);

/// The number of calls on the path since fail_calls.
long count_calls();

/// Lets all calls succeed again.
void let_calls_succeed();
