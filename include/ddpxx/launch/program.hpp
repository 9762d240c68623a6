// ddpxx/launch/program.hpp — runs the body of a main(): an error becomes one line and an exit code.
#pragma once

#include <functional>
#include <string>
#include <type_traits>

namespace ddpxx {

namespace detail {

/// Does what `run_program` does, for a body that returns a number.
[[noreturn]] void run_body(const std::string& name, const std::function<int()>& body);

}  // namespace detail

/// Runs a program's body and ends the process with code 0, the number that the body returns, or the code of an error,
/// which is printed. A copy of another rank's error is printed late, so that only one rank of a machine reports it. The
/// end of a run that was asked to stop (`Errc::stopped`) is not an error; the first rank of a machine prints it.
/// run_program changes settings of the whole process, as follows. A host with a main() of its own calls the library
/// without run_program, which changes none of them.
/// - It ends by std::_Exit, also while other threads run: neither static destructors nor atexit handlers run.
/// - It makes a `ProgramFrame`: SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 ask Trainer::fit() to stop and save if
///   there is a save_dir, and `connect` chooses the number of threads, keeps freed memory on a CPU, silences the
///   backends' log and ignores SIGPIPE.
/// - It handles SIGBUS, unless the program does: a mapped file that another program shortens is an error with code 4.
/// - It ignores SIGXFSZ, unless the program handles it: a file that would exceed `ulimit -f` is an error with code 4.
/// - It opens /dev/null for standard descriptors that are closed, so that no file or socket gets what is printed;
///   printing to them fails as before.
/// - It handles SIGRTMIN, unless the program does: the call stack of the main thread is written to standard error. A
///   launcher of ddpxx asks for it where a rank hangs.
/// - It sets the terminate handler: an error that a backend of LibTorch throws in a thread of its own, as NCCL's does
///   where a collective has failed or took too long, is reported as other errors are, with code 5. Other exceptions
///   reach the handler that was set before.
/// - If mpirun (Open MPI), srun (Slurm) or Kubernetes has started the process as one of several ranks, it sets
///   torchrun's variables, so that `torchrun_environment` finds them. Those that are set already stay as they are.
/// - If an argument of the process is `spawn=N`, `--spawn=N` or `--spawn N`, it starts the program as N ranks on this
///   machine, as `ddpxx-run` does, without this argument. It ends with their exit code and does not call the body.
/// - It writes an error to the file that TORCHELASTIC_ERROR_FILE names, as torchelastic's `record` does in Python.
/// - It informs ddpxx-run, if that has started the process, that the exit codes are those of `Errc`.
template <class Body>
[[noreturn]] void run_program(const std::string& name, Body&& body) {
  detail::run_body(name, [&]() -> int {
    if constexpr (std::is_void_v<std::invoke_result_t<Body>>) {
      body();
      return 0;
    } else {
      return body();
    }
  });
}

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/launch/program_inl.hpp>
#endif
