// plan_config.hpp — the settings of `mingpt plan`.
#pragma once

#include <cstdint>

#include <ddpxx/comm/link_config.hpp>
#include <ddpxx/core/describe.hpp>

#include "run_config.hpp"

/// The settings of a run, in all their spellings, and what a plan needs beside them.
struct PlanConfig {
  std::int64_t world_size = 1;
  std::int64_t memory = 0;
  ddpxx::LinkConfig link;
  double ranks_per_core = 1.0;
  bool overlaps = true;
  RunConfig run;

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(
        field<&PlanConfig::world_size>("Ranks of the run", at_least(1), at_most(65536), Unit::ranks),
        field<&PlanConfig::memory>("Memory for the tensors of a rank, such as 70GiB: the plan says which batch fits in "
                                   "it; 0 is off",
                                   at_least(0), Unit::bytes),
        field<&PlanConfig::link>("The links between the ranks, for plan --time"),
        field<&PlanConfig::ranks_per_core>("Number of ranks that share one core, for plan --time", above(0.0)),
        field<&PlanConfig::overlaps>("Whether collectives run beside the computation, for plan --time; false where the "
                                     "ranks' own cores move the bytes"),
        flatten<&PlanConfig::run>());
  }
  static constexpr auto positionals() { return RunConfig::positionals(); }
  static constexpr auto aliases() { return RunConfig::aliases(); }
  static constexpr auto ignored() { return RunConfig::ignored(); }
  static constexpr auto python_defaults() { return RunConfig::python_defaults(); }
};
