// ddpxx/observe/watched_value.hpp — the number of an evaluation that a setting names.
#pragma once

#include <string>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/observe/events.hpp>

namespace ddpxx {

/// The number of an evaluation that the setting `setting` names by `metric`: `val_loss`, or `val_` and a metric of the
/// model.
/// Errors  `config` where the evaluation has no such number.
inline double watched_value(const std::string& setting, const std::string& metric, const Evaluated& event) {
  if (metric == "val_loss") return event.val_loss;
  std::string names = "val_loss";
  for (const auto& own : event.metrics) {
    if (metric == "val_" + own.name) return own.value;
    names += ", val_" + own.name;
  }
  throw Error{Errc::config, setting + ": an evaluation has no " + harmless(metric) + " (it has: " + names + ")"};
}

}  // namespace ddpxx
