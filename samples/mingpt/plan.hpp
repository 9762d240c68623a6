// plan.hpp — `mingpt plan`: what a run would need, without starting it.
#pragma once

struct CommandLine;

/// Prints a table of the bytes that a rank of the run needs. The line is `mingpt plan world_size=N key=value...`, with
/// the keys of a run. The text is read, since its alphabet is a size of the model; without one a size is assumed.
/// Errors  `config` for what the run itself would refuse.
void plan(const CommandLine& line);
