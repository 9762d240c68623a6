// ddpxx/launch/program_inl.hpp — the definitions of program.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <exception>
#include <fcntl.h>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <typeinfo>
#include <unistd.h>

#include <ddpxx/core/call_stack.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/ignore_signal.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/milestone.hpp>
#include <ddpxx/core/program_end.hpp>
#include <ddpxx/core/program_frame.hpp>
#include <ddpxx/launch/adopt_launcher.hpp>
#include <ddpxx/launch/error_file.hpp>
#include <ddpxx/launch/program.hpp>
#include <ddpxx/launch/spawn.hpp>
#include <ddpxx/launch/standard_descriptors.hpp>

namespace ddpxx {

namespace detail {

/// The number of this rank among those of its machine. With --virtual-local-rank, LOCAL_RANK is 0 in all of them. Other
/// launchers set LOCAL_RANK alone.
inline int number_on_machine() {
  const auto number = environment("LOCAL_RANK").value_or("0");
  return std::atoi((number == "0" ? environment("DDPXX_LOCAL_RANK").value_or(number) : number).c_str());
}

/// Called before a rank reports a copy of another rank's error. Waits, so that the other rank can report it and end,
/// after which the launcher ends this rank. If the other rank is on another machine, the first rank of this machine
/// does not wait.
inline void let_origin_report(int origin) {
  const auto number = [](const char* name, const char* otherwise) {
    return std::atoi(environment(name).value_or(otherwise).c_str());
  };
  const int local_rank = number_on_machine(), first = number("RANK", "0") - local_rank;
  const bool is_here = origin >= first && origin < first + number("LOCAL_WORLD_SIZE", "1");
  if (is_here || local_rank != 0) std::this_thread::sleep_for(std::chrono::seconds{1});
}

/// Handles SIGBUS, which the kernel sends to a program that reads a MappedFile if another program has shortened the
/// file, or a bad sector or a lost server makes it unreadable. For another cause the handler returns, and the signal
/// comes again with its default action.
inline void end_for_lost_mapping(int, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) return;
  constexpr std::string_view kText =
      "error: a .pt, .safetensors or other file was shortened by another program while its bytes were in use, or it "
      "could not be read (look for errors of its disk or server), or /dev/shm is full; leave such files alone while a "
      "program reads them\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText.data(), kText.size());
  std::_Exit(static_cast<int>(Errc::storage));
}

/// Installs the handler of SIGBUS, unless the program has one.
inline void watch_mappings() {
  struct ::sigaction current {
  }, action{};
  if (::sigaction(SIGBUS, nullptr, &current) != 0 || (current.sa_flags & SA_SIGINFO) != 0 ||
      current.sa_handler != SIG_DFL)
    return;
  action.sa_sigaction = end_for_lost_mapping;
  action.sa_flags = SA_SIGINFO | static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGBUS, &action, nullptr);
}

/// The name by which the C++ ABI knows c10::DistBackendError. LibTorch's thread that watches NCCL throws it. This room
/// does not include LibTorch, and so knows the type by its name only.
inline constexpr std::string_view kBackendError = "N3c1016DistBackendErrorE";

/// For an exception that is not an Error.
inline constexpr Errc kWithoutCode{1};

/// What a terminate handler has to know, since it gets no arguments; set by `run_body`.
struct TerminateFacts {
  static inline const std::string* error_prefix_ = nullptr;  ///< The beginning of this program's error lines.
  static inline std::terminate_handler next_ = nullptr;      ///< The handler for other exceptions.
};

/// What `end_for_backend_error` reports for the text of a DistBackendError. That text has several lines, and ends with
/// a stack of addresses. Errors of the GPU, such as an invalid address, come as a DistBackendError, too: no peer is
/// lost then.
inline Error backend_error(std::string text) {
  text = text.substr(0, text.find("\nException raised from "));
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (tells_of_memory(text)) return Error{Errc::memory, "out of memory in a collective; the cause: " + text};
  if (text.find("CUDA error") != std::string::npos) return Error{kWithoutCode, text};
  return Error{Errc::peer, "a collective failed: a rank is gone or did not answer in time; the cause: " + text};
}

/// The terminate handler of `run_body`. It takes no lock that the main thread may hold for ever.
[[noreturn]] inline void end_for_backend_error() {
  const auto* type = abi::__cxa_current_exception_type();
  if (type == nullptr || type->name() != kBackendError) {
    if (TerminateFacts::next_ != nullptr) TerminateFacts::next_();
    std::abort();
  }
  static std::atomic_flag reported;  // several groups may fail at a time
  while (reported.test_and_set()) ::pause();
  try {
    throw;
  } catch (const std::exception& cause) {
    const auto error = backend_error(cause.what());
    const auto line = *TerminateFacts::error_prefix_ + harmless(error.what()) + '\n';
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
    write_error_file(error.what(), static_cast<int>(error.code()));
    if (::ftrylockfile(stdout) == 0) std::fflush(stdout);
    std::_Exit(static_cast<int>(error.code()));
  }
}

/// What is known of the exception that a handler has caught, if it is no std::exception.
inline std::string current_exception_text() {
  const auto* type = abi::__cxa_current_exception_type();
  if (type == nullptr) return "an exception of another language, or the end of the main thread";
  const std::unique_ptr<char, decltype(&std::free)> name{abi::__cxa_demangle(type->name(), nullptr, nullptr, nullptr),
                                                         &std::free};
  return std::string{"an exception of type "} + (name ? name.get() : type->name());
}

[[noreturn]] inline void end_program(int code) {
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace detail

[[noreturn]] DDPXX_INLINE void detail::run_body(const std::string& name, const std::function<int()>& body) {
  std::optional<Error> refusal;
  ignore_signal(SIGXFSZ);
  try {
    adopt_launcher();
    if (const auto code = spawn_ranks_of_program()) std::_Exit(*code);
  } catch (const Error& error) {
    refusal = error;
  }
  open_standard_descriptors(O_RDONLY);
  const auto rank = environment("RANK");
  const auto say = [&](const std::string& text) {
    std::cout.flush();
    // Texts from files, settings or the network may contain control sequences of a terminal.
    std::cerr.clear();  // a disk that was full for an earlier line may have room now
    std::cerr << name + harmless_lines(text) + "\n";
  };
  const std::string of_rank = rank ? ": rank " + harmless(*rank) : std::string{};
  const std::string error_prefix = name + of_rank + ": error: ";
  const auto report = [&](const std::string& text) { say(of_rank + ": error: " + text); };
  const ProgramFrame frame;
  watch_mappings();
  write_call_stack_on_signal();
  TerminateFacts::error_prefix_ = &error_prefix;
  TerminateFacts::next_ = std::set_terminate(end_for_backend_error);
  tell_launcher(Milestone::began);
  try {
    if (refusal) throw *refusal;
    const int code = body();
    tell_launcher(Milestone::began);  // a trainer that stopped inside did not end the program
    end_program(code);
  } catch (const ProgramEnd& end) {
    end_program(end.code());
  } catch (const std::exception& cause) {
    const auto error = as_error(cause, kWithoutCode);
    const int code = static_cast<int>(error.code());
    if (error.code() == Errc::stopped) {
      std::signal(SIGPIPE, SIG_IGN);  // Ctrl-C may also have ended the reader of a pipe
      if (detail::number_on_machine() == 0) say(": " + std::string{error.what()});
    } else {
      if (error.origin()) let_origin_report(*error.origin());
      write_error_file(error.what(), code);
      report(error.what());
    }
    end_program(code);  // while the error lives, which holds the signals of a run that was stopped
  } catch (...) {
    const auto text = current_exception_text();
    write_error_file(text, static_cast<int>(kWithoutCode));
    report(text);
    end_program(static_cast<int>(kWithoutCode));
  }
}

}  // namespace ddpxx
