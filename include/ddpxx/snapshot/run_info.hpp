// ddpxx/snapshot/run_info.hpp — where a run stands and how it was configured: everything of a snapshot but its tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ddpxx/core/setting.hpp>

namespace ddpxx {

/// A parameter of a model and the optimizer group that it belongs to.
struct OptimizedParameter {
  std::string name;     ///< The name that the model registers it under.
  bool decays = false;  ///< True if weight decay applies to it.
};

/// The facts of a run at the boundary between two steps.
struct RunInfo {
  std::int64_t step = 0;                            ///< Optimizer steps done.
  std::int64_t epoch = 0;                           ///< Complete passes over the data.
  std::int64_t position = 0;                        ///< Samples of the current epoch used by all ranks together.
  Settings settings = {};                           ///< The configuration of the run.
  std::map<std::string, double> metrics = {};       ///< For example the loss of the last evaluation.
  std::vector<OptimizedParameter> parameters = {};  ///< In the order in which the model registers them, if known.
  std::string overrides = {};                       ///< The arguments that set something, as a YAML list.
  std::string config_hash = {};  ///< A name for the settings, in hexadecimal digits; empty if unknown.
  std::string optimizer = {};    ///< The optimizer's name, such as "Adam"; empty if it is not known.
  std::int64_t tokens = 0;       ///< Targets that all ranks together have trained on; 0 if unknown.
};

}  // namespace ddpxx
