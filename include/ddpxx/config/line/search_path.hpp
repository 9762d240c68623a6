// ddpxx/config/line/search_path.hpp — the folders in which a config file is searched, first the current folder.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <ddpxx/config/files/config_file.hpp>
#include <ddpxx/config/line/arguments.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/core/each_entry.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/suggest.hpp>

namespace ddpxx::detail {

class SearchPath {
 public:
  /// Searches the current folder, then that of --config-path, then those of --config-dir.
  SearchPath(const std::filesystem::path& config_path, const std::vector<OptionValue>& more) {
    add(".");
    add(config_path);
    for (const auto& folder : more) add(folder.text);
  }

  /// The entries of the file and of all files that it includes, in the order in which they apply. A file that cannot be
  /// read is a problem at the option that names it.
  std::vector<SourceEntries> read(const OptionValue& name, std::size_t order) const {
    const auto complain = [&](const std::string& why) {
      return std::vector<SourceEntries>{{.source = name.place.source, .problems = {{name.place, "", why}}}};
    };
    const auto found = find(name.text);
    if (!found) return complain(not_found(name.text));
    try {
      return read_config_files(*found, order);
    } catch (const Error& error) {
      return complain(error.what());
    }
  }

 private:
  static constexpr std::array kEndings{".yaml", ".yml", ".json"};

  void add(const std::filesystem::path& folder) {
    const auto path = folder.lexically_normal();
    if (std::ranges::find(folders_, path) == folders_.end()) folders_.push_back(path);
  }

  /// The path of the file `name`, or of `name` with one of the endings. Files take precedence over folders. None if
  /// there is none.
  std::optional<std::filesystem::path> find(const std::string& name) const {
    std::error_code ignored;
    std::optional<std::filesystem::path> directory;
    for (const auto& folder : folders_)
      for (const std::string ending : {"", ".yaml", ".yml", ".json"}) {
        const auto path = (folder / (name + ending)).lexically_normal();
        const bool is_folder = std::filesystem::is_directory(path, ignored);
        const bool is_there = std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
        if (is_there && !is_folder) return path;
        if (is_folder && !directory) directory = path;
      }
    return directory;
  }

  /// A message such as `there is no file run.yaml in the current folder or in conf (did you mean run2.yaml?)`.
  std::string not_found(const std::string& name) const {
    if (name.empty()) return "names no file";
    if (std::filesystem::path{name}.is_absolute()) return "there is no file " + shown(name) + similar(name);
    std::vector<std::string> places;
    for (const auto& folder : folders_)
      places.push_back(folder == "." ? "in the current folder" : "in " + folder.string());
    return "there is no file " + shown(name) + ' ' + one_of(places) + similar(name);
  }

  /// A suggestion such as ` (did you mean gpt2.yaml?)`, from the files in the folders.
  std::string similar(const std::string& name) const {
    std::vector<std::string> names;
    for (const auto& folder : folders_)
      each_entry(folder, [&](const auto& entry) {
        if (const auto ending = entry.path().extension(); std::ranges::find(kEndings, ending) != kEndings.end())
          names.push_back(name.ends_with(ending.string()) ? entry.path().filename().string()
                                                          : entry.path().stem().string());
      });
    std::ranges::sort(names);
    const auto meant = nearest(name, names);
    return meant ? " (did you mean " + *meant + "?)" : "";
  }

  std::vector<std::filesystem::path> folders_;
};

}  // namespace ddpxx::detail
