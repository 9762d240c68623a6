// ddpxx/config/choose_recorded.hpp — how a program chooses the settings of an earlier run as a source of its config.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <utility>

#include <ddpxx/core/setting.hpp>

namespace ddpxx {

/// Settings that an earlier run has recorded. Keys that the config no longer has, and secrets, are ignored.
struct RecordedSettings {
  Settings settings{};
  std::string name{};  ///< The name of their source in messages.
};

/// A config as files, environment and arguments set it, without recorded settings.
template <class Config>
struct GivenConfig {
  Config config{};
  /// Paths of the values that are set, but for those that refer to other settings, which may have recorded values.
  std::set<std::string> paths{};
  /// Paths of the values that could not be read or that do not fit without recorded settings; they have their defaults.
  std::set<std::string> unread{};
  bool is_run = true;  ///< False if an option such as --cfg only shows the config.
};

/// Returns the settings of an earlier run, which files, environment and arguments override. It may choose that run by
/// what these set.
template <class Config>
using ChooseRecorded = std::function<RecordedSettings(const GivenConfig<Config>& given)>;

namespace detail {

/// What GivenConfig has beside the config.
struct GivenPaths {
  std::set<std::string> paths{}, unread{};
  bool is_run = true;
};

/// ChooseRecorded without its type.
struct RecordedChoice {
  void* given = nullptr;  ///< A config that holds its defaults, and is filled from files, environment and arguments.
  std::function<RecordedSettings(GivenPaths paths)> choose{};  ///< Empty: nothing is recorded.
};

/// `recorded` without its type. `given` and `recorded` must outlive the result.
template <class Config>
RecordedChoice recorded_choice(GivenConfig<Config>& given, const ChooseRecorded<Config>& recorded) {
  if (!recorded) return {};
  return {&given.config, [&](GivenPaths paths) {
            given.paths = std::move(paths.paths);
            given.unread = std::move(paths.unread);
            given.is_run = paths.is_run;
            return recorded(given);
          }};
}

}  // namespace detail

}  // namespace ddpxx
