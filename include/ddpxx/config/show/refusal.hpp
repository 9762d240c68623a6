// ddpxx/config/show/refusal.hpp — ends a program whose configuration is wrong, with a message from one rank.
#pragma once

#include <chrono>
#include <iostream>
#include <thread>
#include <utility>
#include <vector>

#include <ddpxx/config/files/problem_json.hpp>
#include <ddpxx/config/line/arguments.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/program_end.hpp>

namespace ddpxx::detail {

/// True on rank 0, and in a process that no launcher has started. Only that process prints.
inline bool is_first_rank() { return environment("RANK").value_or("0") == "0"; }

/// Reports the problems of a configuration, and ends the program with `Errc::config`: as text by an `Error`, or as JSON
/// by printing it and a `ProgramEnd`.
/// Ranks   Rank 0 reports at once. The other ranks usually have equal problems: they wait, and the launcher ends them
///         once rank 0 has ended. A rank that still runs after its wait reports its problems: they come from its own
///         variables or files, or its launcher is not on the machine of rank 0. The first rank of a machine waits less
///         than the others there, so that it reports for them.
[[noreturn]] inline void refuse_config(const std::vector<ConfigProblem>& problems, ErrorStyle style) {
  constexpr std::chrono::seconds kShort{2}, kLong{6};
  if (!is_first_rank()) std::this_thread::sleep_for(environment("LOCAL_RANK").value_or("0") == "0" ? kShort : kLong);
  if (style == ErrorStyle::text) throw Error{Errc::config, problem_report(problems)};
  std::cerr << problems_as_json(problems) << std::endl;
  throw ProgramEnd{static_cast<int>(Errc::config)};
}

}  // namespace ddpxx::detail
