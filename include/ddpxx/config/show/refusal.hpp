// ddpxx/config/show/refusal.hpp — the end of a program whose configuration is wrong: who says so, and in which form.
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

namespace ddpxx {

/// Of several ranks the first one speaks. A process that no launcher has started is the first one.
inline bool is_first_rank() { return environment("RANK").value_or("0") == "0"; }

/// Says what is wrong with a configuration, and ends the program with `Errc::config`: as text by an `Error`, as JSON by
/// printing it and a `ProgramEnd`.
/// Ranks   Usually all find the same problems, and rank 0 tells them. The others wait, and the launcher ends them as
///         soon as rank 0 has ended. A rank that still runs after its wait tells its problems: they are its own (from
///         its variables, or from files of its machine), or its launcher is on another machine than rank 0. The first
///         rank of a machine waits less than the others there, so that it tells the problems for them.
[[noreturn]] inline void refuse_config(const std::vector<ConfigProblem>& problems, ErrorStyle style) {
  constexpr std::chrono::seconds kShort{2}, kLong{6};
  if (!is_first_rank()) std::this_thread::sleep_for(environment("LOCAL_RANK").value_or("0") == "0" ? kShort : kLong);
  if (style == ErrorStyle::text) throw Error{Errc::config, problem_report(problems)};
  std::cerr << problems_as_json(problems) << std::endl;
  throw ProgramEnd{static_cast<int>(Errc::config)};
}

}  // namespace ddpxx
