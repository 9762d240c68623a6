// ddpxx/config/sweep.hpp — `-m` on the command line: arguments have several values, and the program runs once for each
// combination. Grammar and order are those of Hydra, without its escapes by a backslash; text/sweep_value.hpp reads the
// values.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/config/table.hpp>
#include <ddpxx/core/sweep.hpp>

namespace ddpxx {

/// True if the arguments ask for a sweep: by `--multirun`, or by `-m` together with an argument that has a `=`, since
/// other programs use `-m` for something else.
bool asks_for_sweep(std::span<const std::string> arguments);

/// The sweep that the arguments, without the program's name, ask for; none if they ask for none. Jobs show secrets as
/// `***`: those that `table` declares or, without a table, values of keys that sound like secrets and have one value.
/// Errors  `config`, with every problem and its argument.
std::optional<Sweep> read_sweep(std::span<const std::string> arguments, const ConfigTable* table = nullptr);

/// The sweep that the arguments of `program` ask for. Python's own -m names a module, so a Python program asks for a
/// sweep by `--multirun`.
std::optional<Sweep> read_sweep(std::string_view program, std::span<const std::string> arguments);

/// The sweep for a main() that parses with ddpxx, where `-m` alone asks for one:
/// `read_sweep(argc, argv, table_of<MyConfig>())`.
std::optional<Sweep> read_sweep(int argc, const char* const* argv, const ConfigTable& table);

/// All combinations of the arguments' values; the last argument varies fastest. Arguments with one value are in every
/// job unchanged.
/// Errors  `config`, with every problem and its argument; more than `kMaxSweepJobs` jobs are a problem.
std::vector<SweepJob> expand_sweep(std::span<const std::string> arguments);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/config/sweep_inl.hpp>
#endif
