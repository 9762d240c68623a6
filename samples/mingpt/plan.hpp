// plan.hpp — `mingpt plan`: the memory that a run would need, or the time of its steps, without starting it.
#pragma once

struct CommandLine;

/// Prints a table of the bytes of the tensors of a rank of the run, and with memory=BYTES the largest batch that fits
/// in them; with --time a table of plan_time(). The command line is `mingpt plan [--time] world_size=N key=value...`,
/// with the keys of PlanConfig. The text is read, because the size of its alphabet is a size of the model; without a
/// text a size is assumed.
///
/// Errors  `config` for settings that the run itself would refuse, and for memory with --time.
void plan(const CommandLine& line);
