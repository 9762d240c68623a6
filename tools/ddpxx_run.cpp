// ddpxx_run.cpp — starts a program once for each rank, with the variables that torchrun sets; with `-m` among the
// program's arguments, once for each job of a sweep.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <iostream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <ddpxx/config/sweep.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/ignore_signal.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/standard_output.hpp>
#include <ddpxx/core/sweep.hpp>
#include <ddpxx/launch/agent.hpp>
#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/parse_launch.hpp>
#include <ddpxx/launch/standard_descriptors.hpp>
#include <ddpxx/launch/sweep_command.hpp>
#include <ddpxx/launch/sweep_runner.hpp>
#include <ddpxx/version.hpp>

namespace {

constexpr const char* kSweepHelp =
    "With -m among ARGUMENTS, PROGRAM runs once for each combination of values, as in lr=1e-3,3e-4 'seed=range(3)';\n"
    "--jobs N, --sweep-dir DIR, --metric NAME, --dry-run and --slurm-array go with it.\n"
    "`ddpxx-run --version` prints the version.\n";

/// Removes the variables that give flags: a sweep's jobs get the whole plan on their command lines, and would read
/// PET_MODULE a second time.
void forget_flags_of_environment() {
  for (const auto& flag : ddpxx::detail::kLaunchFlags) ::unsetenv(ddpxx::detail::launch_variable(flag).c_str());
}

/// Prints an error; each of several problems has a line of its own.
void report(const std::string& text) {
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);) std::cerr << "ddpxx-run: " << ddpxx::harmless(line) << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  ddpxx::detail::open_standard_descriptors(O_RDWR);
  ddpxx::ignore_signal(SIGXFSZ);  // a log that cannot grow any more must not end the run
  try {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    if (!arguments.empty() && arguments.front() == "--version") {
      std::cout << ddpxx::version_line() << '\n';
      ddpxx::check_standard_output();
      return 0;
    }
    // The script for Slurm finds the first host itself.
    if (ddpxx::asks_for_sweep(arguments) && std::ranges::find(arguments, "--slurm-array") != arguments.end())
      arguments.insert(arguments.begin(), "--master-addr=the-first-host");
    const auto plan = ddpxx::parse_launch(arguments);
    if (!plan) {
      std::cout << ddpxx::launch_help() << kSweepHelp;
      ddpxx::check_standard_output();
      return 0;
    }
    const auto arguments_of_program = std::span{plan->arguments}.subspan(plan->num_added_arguments);
    if (const auto sweep = ddpxx::read_sweep(plan->program, arguments_of_program)) {
      forget_flags_of_environment();
      return ddpxx::run_sweep(*sweep, ddpxx::launch_command(*plan, argv[0]));
    }
    return ddpxx::Agent{*plan}.run();
  } catch (const ddpxx::Error& error) {
    report(error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    report(error.what());
    return 1;
  }
}
