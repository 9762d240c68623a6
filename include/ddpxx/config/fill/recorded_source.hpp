// ddpxx/config/fill/recorded_source.hpp — the settings that an earlier run has recorded, as a source of this one.
#pragma once

#include <string>
#include <utility>

#include <ddpxx/config/files/yaml.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx::detail {

/// The entries of the settings, as of a file with lines `path: value`. Secrets are left out, because their values are
/// not recorded, and so are paths that the table does not have, which another version or the program itself has
/// recorded.
inline SourceEntries read_recorded(const Settings& settings, std::string name, const ConfigTable& table) {
  std::string text;
  for (const auto& [path, value, resume, origin] : settings)
    if (const auto* row = table.find(path); row != nullptr && !row->facts.is_secret) text += path + ": " + value + '\n';
  return read_yaml_text(text, std::move(name), 0);
}

}  // namespace ddpxx::detail
