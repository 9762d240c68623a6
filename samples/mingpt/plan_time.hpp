// plan_time.hpp — `mingpt plan --time`: the time of a step on more ranks than there are.
#pragma once

struct PlanConfig;
struct TextSizes;

/// Prints a table of the time of a step on 1, 2, 4 ... ranks, up to those of the plan. This process does the steps of
/// one rank, and the time of its collectives follows from the speed of the links.
/// Errors  `config` without the speed of the links; those of the run itself.
void plan_time(const PlanConfig& planned, const TextSizes& text);
