// outputs_among_texts.hpp — finds places of output in a folder whose files are read as text.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/data/text_files.hpp>

/// Whether `place` is `folder` or lies below it. Two folders of a disk, or two prefixes in buckets.
inline bool lies_in(const std::string& place, std::string folder) {
  if (folder.find("://") != std::string::npos) {
    while (folder.ends_with('/')) folder.pop_back();
    return place == folder || place.starts_with(folder + '/');
  }
  return place.find("://") == std::string::npos && ddpxx::is_among_texts(place, folder);
}

/// An error for each of the settings `outputs`, a field and its place, that lies in `folder`: all files in a folder of
/// texts are read, so that the next start of the run would read its own snapshots and rows as text.
/// `key` is the setting that names the folder. A place with a reference, `${run_folder}/a`, is not known yet.
inline std::vector<ddpxx::FieldError> outputs_among_texts(
    const std::string& folder, const std::string& key,
    const std::vector<std::pair<std::string, std::string>>& outputs) {
  std::vector<ddpxx::FieldError> errors;
  if (folder.empty()) return errors;
  for (const auto& [field, place] : outputs)
    if (!place.empty() && place.find("${") == std::string::npos && lies_in(place, folder))
      errors.push_back({field, "lies in " + key + '=' + folder +
                                   ", all files of which are read as text, so that the run could not resume: choose a "
                                   "place outside of that folder"});
  return errors;
}
