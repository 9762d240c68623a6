// ddpxx/config/sweep.hpp — `-m` on the command line: arguments have several values, and the program runs once for each
// combination. Grammar and order are those of Hydra, without its escapes by a backslash; text/sweep_value.hpp reads the
// values.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <ddpxx/config/table.hpp>
#include <ddpxx/core/sweep.hpp>

namespace ddpxx {

/// True if the arguments ask for a sweep: by `--multirun`, or by `-m` together with an argument that has a `=`, since
/// other programs use `-m` for something else.
bool asks_for_sweep(std::span<const std::string> arguments);

/// The sweep that the arguments, without the program's name, ask for; none if they ask for none. Its jobs are all
/// combinations of the arguments' values; the last argument varies fastest, and arguments with one value are in every
/// job unchanged. Jobs show secrets as `***`: those that `table` declares or, without a table, values of keys that
/// sound like secrets and have one value.
///
/// Errors  `config`, with every problem and its argument; more than `kMaxSweepJobs` jobs are a problem.
std::optional<Sweep> read_sweep(std::span<const std::string> arguments, const ConfigTable* table = nullptr);

/// The sweep that the arguments of `program` ask for. Python's own -m names a module, so a Python program asks for a
/// sweep by `--multirun`.
std::optional<Sweep> read_sweep(std::string_view program, std::span<const std::string> arguments);

/// The sweep for a main() that parses with ddpxx, where `-m` alone asks for one:
/// `read_sweep(argc, argv, table_of<MyConfig>())`.
std::optional<Sweep> read_sweep(int argc, const char* const* argv, const ConfigTable& table);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/config/sweep_inl.hpp>
#endif
