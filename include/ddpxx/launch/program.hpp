// ddpxx/launch/program.hpp — the frame of a main(): errors become one line and an exit code.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx {

namespace detail {

inline bool tells_of_memory(const std::string& text) {
  return text.find("out of memory") != std::string::npos || text.find("allocate memory") != std::string::npos;
}

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

}  // namespace detail

/// Runs a program's body and ends the process: code 0, or the number that the body returns, or the code of the error,
/// which is printed. A copy of another rank's error is printed late, so that one rank of a machine reports it. The end
/// of a run that was asked to stop (`Errc::stopped`) is no error, and the first rank of a machine says it.
/// Leaves by std::_Exit: a backend with unfinished work would wait for peers in its destructor.
template <class Body>
[[noreturn]] void run_program(const std::string& name, Body&& body) {
  const auto rank = environment("RANK");
  const auto say = [&](const std::string& text) {
    std::cout.flush();
    std::cerr << name + text + "\n";
  };
  const auto report = [&](const std::string& text) {
    say((rank ? ": rank " + *rank : std::string{}) + ": error: " + text);
  };
  int code = 0;
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Body>>)
      body();
    else
      code = body();
  } catch (const Error& error) {
    code = static_cast<int>(error.code());
    if (error.code() == Errc::stopped) {
      if (environment("LOCAL_RANK").value_or("0") == "0") say(": " + std::string{error.what()});
    } else {
      if (error.origin()) detail::let_origin_report(*error.origin());
      report(error.what());
    }
  } catch (const std::bad_alloc&) {
    report("out of memory: use a smaller batch or model");
    code = static_cast<int>(Errc::memory);
  } catch (const std::system_error& error) {
    const bool is_limit = error.code() == std::errc::resource_unavailable_try_again;
    report(is_limit ? first_line(error) + ": the system has no more threads (limit: ulimit -u)" : first_line(error));
    code = is_limit ? static_cast<int>(Errc::peer) : 1;
  } catch (const std::exception& error) {
    const auto text = first_line(error);
    report(text);
    code = detail::tells_of_memory(text) ? static_cast<int>(Errc::memory) : 1;
  }
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace ddpxx
