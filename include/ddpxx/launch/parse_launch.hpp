// ddpxx/launch/parse_launch.hpp — reads the command line of ddpxx-run. The flags and their meaning are torchrun's, with
// dashes or underscores; an unknown flag is refused by name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/suggest.hpp>
#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/plan/flag_table.hpp>
#include <ddpxx/launch/plan/launch_flags.hpp>

namespace ddpxx {

/// Reads the arguments of ddpxx-run; none if they ask for help. The first argument that is not a flag is the program to
/// start, and the rest are its arguments. A flag that is not given has the value of the variable PET_ and its name,
/// such as PET_NNODES, as in torchrun. The variable of a flag that is given is not read.
/// Errors  `config`, naming the flag or the variable.
inline std::optional<LaunchPlan> parse_launch(std::span<const std::string> arguments);

/// The text of `ddpxx-run --help`, from the table of flags that `parse_launch` reads.
inline std::string launch_help();

namespace detail {

inline const LaunchFlag& launch_flag(std::string name) {
  const std::string spelt = name;
  std::replace(name.begin(), name.end(), '_', '-');
  const auto found = std::find_if(kLaunchFlags.begin(), kLaunchFlags.end(),
                                  [&](auto& flag) { return flag.name == name || flag.short_name == name; });
  if (found != kLaunchFlags.end()) return *found;
  std::vector<std::string> known;  // without the dashes, which any two flags share
  for (const auto& flag : kLaunchFlags) known.emplace_back(flag.name.substr(2));
  const auto meant = nearest(name.substr(std::min(name.find_first_not_of('-'), name.size())), known);
  throw Error{Errc::config, "unknown flag " + spelt + (meant ? " (did you mean --" + *meant + "?)" : "") +
                                "; `ddpxx-run --help` lists the flags"};
}

/// Where the name of a flag ends in an argument that goes on with the value, as in `--tee=3`, `-t=3` and `-t3`; npos if
/// the argument is only a name.
inline std::size_t end_of_name(const std::string& argument) {
  const bool is_short =
      argument.size() > 2 && argument[1] != '-' && std::ranges::any_of(kLaunchFlags, [&](const LaunchFlag& flag) {
        return !flag.value.empty() && flag.short_name == argument.substr(0, 2);
      });
  return is_short ? 2 : argument.find('=');
}

/// Lines with `left`, and beside it the words of `right`, in a column of their own.
inline std::string beside(const std::string& left, std::string_view right) {
  constexpr std::size_t kColumn = 30, kWidth = 110;
  std::string text, line = left;
  if (left.size() >= kColumn) {
    text = left + '\n';
    line.clear();
  }
  line.resize(kColumn, ' ');
  while (!right.empty()) {
    const auto word = right.substr(0, right.find(' '));
    right.remove_prefix(std::min(right.size(), word.size() + 1));
    if (line.size() > kColumn && line.size() + 1 + word.size() > kWidth) {
      text += line + '\n';
      line.assign(kColumn, ' ');
    }
    if (line.size() > kColumn) line += ' ';
    line += word;
  }
  return text + line + '\n';
}

/// The name of the variable that gives a flag's value, such as PET_NPROC_PER_NODE.
inline std::string launch_variable(const LaunchFlag& flag) {
  std::string name = "PET_" + std::string{flag.name.substr(2)};
  std::transform(name.begin(), name.end(), name.begin(), [](char c) {
    return c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return name;
}

/// Flags of the command line with their values, in their order.
using GivenFlags = std::vector<std::pair<const LaunchFlag*, std::string>>;

/// The flags that variables give, in the order of the table, without those that the command line has given: a variable
/// may have a value that is wrong here, such as PET_NPROC_PER_NODE=gpu on a machine without GPUs. A flag without a
/// value is given by 1 and not by 0.
inline LaunchFlags flags_of_environment(const GivenFlags& given) {
  LaunchFlags flags;
  for (const LaunchFlag& flag : kLaunchFlags) {
    const bool is_given = std::ranges::any_of(given, [&](const auto& one) { return one.first->name == flag.name; });
    if (is_given || flag.name == "--help") continue;
    const auto variable = launch_variable(flag);
    const auto value = environment(variable.c_str());
    if (!value) continue;
    LaunchFlag named = flag;
    named.source = variable;
    if (flag.value.empty() && *value != "0" && *value != "1") refuse(named, *value, "0 or 1");
    if (!flag.value.empty() || *value == "1") flags.apply(named, *value);
  }
  return flags;
}

}  // namespace detail

inline std::optional<LaunchPlan> parse_launch(std::span<const std::string> arguments) {
  detail::GivenFlags given;
  while (!arguments.empty() && arguments.front().starts_with('-')) {
    const std::string argument = arguments.front();
    arguments = arguments.subspan(1);
    if (argument == "--") break;
    const auto equals = detail::end_of_name(argument);
    const detail::LaunchFlag& flag = detail::launch_flag(argument.substr(0, equals));
    if (flag.name == "--help") return std::nullopt;
    std::string text;
    if (flag.value.empty()) {
      if (equals != std::string::npos) throw Error{Errc::config, std::string{flag.name} + " takes no value"};
    } else if (equals != std::string::npos) {
      text = argument.substr(equals + (argument[equals] == '=' ? 1 : 0));
    } else {
      if (arguments.empty())
        throw Error{Errc::config, std::string{flag.name} + " needs a value: " + std::string{flag.value}};
      text = arguments.front();
      arguments = arguments.subspan(1);
    }
    given.emplace_back(&flag, std::move(text));
  }
  auto flags = detail::flags_of_environment(given);
  for (const auto& [flag, text] : given) flags.apply(*flag, text);
  return flags.plan(arguments);
}

inline std::string launch_help() {
  std::string text =
      "Usage: ddpxx-run [FLAGS] PROGRAM [ARGUMENTS]\n"
      "Starts PROGRAM once per rank with the variables that torchrun sets, and ends all ranks when one fails.\n\n";
  for (const auto& flag : detail::kLaunchFlags) {
    const std::string left = "  " + std::string{flag.short_name} + (flag.short_name.empty() ? "" : ", ") +
                             std::string{flag.name} + (flag.value.empty() ? "" : " ") + std::string{flag.value};
    text += detail::beside(left, flag.help);
  }
  return text +
         "\nEvery flag is also understood with underscores and as --flag=value, and is given by a variable such as\n"
         "PET_NPROC_PER_NODE where the command line does not give it.\n"
         "With several ranks each line of output starts with its rank, `[rank3]: `; OMP_NUM_THREADS is 1 unless set.\n"
         "On a terminal rank 0 writes its standard output itself, without `[rank0]: `.\n"
         "Several machines: the environment variable DDPXX_TOKEN, equal on all, keeps other programs out of the run.\n"
         "Ranks read nothing from standard input. SIGINT, SIGTERM, SIGHUP and SIGQUIT reach the ranks of all\n"
         "machines, SIGUSR1 and SIGUSR2 those of this one; a second SIGINT, a second or more later, kills them.\n"
         "Training programs of ddpxx with a save_dir stop on such a signal (but SIGQUIT) after a step, save, and\n"
         "end with 75; SIGUSR1 and SIGUSR2 set no time for that, the others --grace.\n"
         "Exit code: 0; 75 when the ranks stopped by a signal and saved; otherwise that of the rank that failed first\n"
         "(128+n for signal n); 2 when the command line is wrong or PROGRAM cannot be started.\n"
         "Ranks are not restarted after 2 (configuration) or 3 (data), programs of ddpxx also not after 4 (a snapshot\n"
         "or another file cannot be written or read) or 6 (loss is NaN or infinite), nor after three starts in a row\n"
         "that ended before the result of a step was read.\n";
}

}  // namespace ddpxx
