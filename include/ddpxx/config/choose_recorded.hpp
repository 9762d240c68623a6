// ddpxx/config/choose_recorded.hpp — how a program chooses the settings of an earlier run as a source of its config.
#pragma once

#include <functional>
#include <set>
#include <string>

#include <ddpxx/core/setting.hpp>

namespace ddpxx {

/// Settings that an earlier run has recorded. Keys that the config no longer has, and secrets, are ignored.
struct RecordedSettings {
  Settings settings{};
  std::string name{};  ///< What messages call them.
};

/// A config as files, environment and arguments set it, without recorded settings.
template <class Config>
struct GivenConfig {
  Config config{};
  std::set<std::string> paths{};  ///< Of the values that are set; the others have their defaults.
  bool is_readable = true;        ///< False if a value could not be read, which is reported afterwards.
};

/// Returns the settings of an earlier run, which files, environment and arguments override. It may choose that run by
/// what these set.
template <class Config>
using ChooseRecorded = std::function<RecordedSettings(const GivenConfig<Config>& given)>;

namespace detail {

/// ChooseRecorded without its type.
struct RecordedChoice {
  void* given = nullptr;  ///< A config that holds its defaults, and is filled from files, environment and arguments.
  /// Gets the rest of GivenConfig; empty if nothing is recorded.
  std::function<RecordedSettings(std::set<std::string> paths, bool is_readable)> choose{};
};

}  // namespace detail

}  // namespace ddpxx
