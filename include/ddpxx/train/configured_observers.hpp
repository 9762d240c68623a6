// ddpxx/train/configured_observers.hpp — the observers that a run's configuration asks for.
#pragma once

#include <iosfwd>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/observe/run_report.hpp>
#include <ddpxx/train/training_settings.hpp>

namespace ddpxx {

/// Adds the files that `training` names, and the lines on `screen`.
/// Ranks   Local; a trainer calls it on rank 0.
/// Errors  `config` for a file or folder that cannot be opened.
void add_configured_observers(RunReport& report, const TrainingConfig& training, std::ostream& screen);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/configured_observers_inl.hpp>
#endif
