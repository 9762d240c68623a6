// ddpxx/launch/program.hpp — the frame of a main(): errors become one line and an exit code.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <unistd.h>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/milestone.hpp>
#include <ddpxx/core/program_end.hpp>
#include <ddpxx/core/program_frame.hpp>

namespace ddpxx {

namespace detail {

/// Before a rank reports a copy of another rank's error: time for that rank to report it and end, upon which the
/// launcher ends this rank. Where the other rank is on another machine, the first rank of this one reports at once.
inline void let_origin_report(int origin) {
  const auto number = [](const char* name, const char* otherwise) {
    return std::atoi(environment(name).value_or(otherwise).c_str());
  };
  const int local_rank = number("LOCAL_RANK", "0"), first = number("RANK", "0") - local_rank;
  const bool is_here = origin >= first && origin < first + number("LOCAL_WORLD_SIZE", "1");
  if (is_here || local_rank != 0) std::this_thread::sleep_for(std::chrono::seconds{1});
}

/// A program that reads bytes of a MappedFile gets SIGBUS from the kernel where another program has shortened the file,
/// or the file could not be read, for a bad sector or a lost server. For any other cause the signal comes again, and
/// does what it would have done.
inline void end_for_lost_mapping(int, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) return;
  constexpr std::string_view kText =
      "error: a .pt, .safetensors or other file was shortened by another program while its bytes were in use, or it "
      "could not be read (look for errors of its disk or server), or /dev/shm is full; leave such files alone while a "
      "program reads them\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText.data(), kText.size());
  std::_Exit(static_cast<int>(Errc::storage));
}

/// A handler that the program has installed itself stays.
inline void watch_mappings() {
  struct ::sigaction current {
  }, action{};
  if (::sigaction(SIGBUS, nullptr, &current) != 0 || (current.sa_flags & static_cast<int>(SA_SIGINFO)) != 0 ||
      current.sa_handler != SIG_DFL)
    return;
  action.sa_sigaction = end_for_lost_mapping;
  action.sa_flags = SA_SIGINFO | static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace detail

/// Runs a program's body and ends the process: code 0, or the number that the body returns, or the code of the error,
/// which is printed. A copy of another rank's error is printed late, so that one rank of a machine reports it. The end
/// of a run that was asked to stop (`Errc::stopped`) is no error, and the first rank of a machine says it.
/// The process belongs to the program, so that this changes settings of the whole process. A host that has a main() of
/// its own calls the library without run_program, and none of the following happens.
/// - It ends by std::_Exit, whatever other threads still do: neither static destructors nor atexit handlers run.
/// - It makes a `ProgramFrame`: SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 ask a trainer to stop and save while it
///   trains with a save_dir, and `connect` chooses the number of threads, silences the backends' log and ignores
///   SIGPIPE.
/// - It handles SIGBUS, unless the program does: a mapped file that another program shortens is an error with code 4.
/// - It tells ddpxx-run, where that has started the process, that the exit codes are those of `Errc`.
template <class Body>
[[noreturn]] void run_program(const std::string& name, Body&& body) {
  const auto rank = environment("RANK");
  const auto say = [&](const std::string& text) {
    std::cout.flush();
    // What comes from files, settings or the network may hold what a terminal would obey.
    std::cerr << name + harmless_lines(text) + "\n";
  };
  const auto report = [&](const std::string& text) {
    say((rank ? ": rank " + harmless(*rank) : std::string{}) + ": error: " + text);
  };
  constexpr Errc kWithoutCode{1};  // of an exception that is no Error
  const ProgramFrame frame;
  detail::watch_mappings();
  tell_launcher(Milestone::began);
  int code = 0;
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Body>>)
      body();
    else
      code = body();
    tell_launcher(Milestone::began);  // what stopped in it, if anything did, was no reason for the program to end
  } catch (const ProgramEnd& end) {
    code = end.code();
  } catch (const std::exception& cause) {
    const auto error = as_error(cause, kWithoutCode);
    code = static_cast<int>(error.code());
    if (error.code() == Errc::stopped) {
      std::signal(SIGPIPE, SIG_IGN);  // Ctrl-C may have ended the reader of a pipe as well
      if (environment("LOCAL_RANK").value_or("0") == "0") say(": " + std::string{error.what()});
    } else {
      if (error.origin()) detail::let_origin_report(*error.origin());
      report(error.what());
    }
  }
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace ddpxx
