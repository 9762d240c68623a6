// ddpxx/config/search_path.hpp — the folders in which --config-name looks for its file.
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

#include <ddpxx/config/arguments.hpp>
#include <ddpxx/config/config_file.hpp>
#include <ddpxx/config/source.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/suggest.hpp>

namespace ddpxx {

class SearchPath {
 public:
  /// The first folder, then those of --config-dir.
  SearchPath(std::filesystem::path first, const std::vector<OptionValue>& more) : folders_{std::move(first)} {
    for (const auto& folder : more) folders_.emplace_back(folder.text);
  }

  /// What the file and all that it includes say, in the order in which they are applied. A file that cannot be read is
  /// a problem at the option that names it.
  std::vector<Said> read(const OptionValue& name, std::size_t order) const {
    const auto found = name.is_path ? std::optional{std::filesystem::path{name.text}} : find(name.text);
    try {
      return read_config_files(found.value_or((folders_.front() / name.text).lexically_normal()), order);
    } catch (const Error& error) {
      const auto text = error.what() + (found ? "" : similar(name.text));
      return {{.source = name.place.source, .problems = {{name.place, "", text}}}};
    }
  }

 private:
  static constexpr std::array kEndings{".yaml", ".yml", ".json"};

  /// `FILE`, or with one of the endings; no folder, if possible. None when none is there.
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

  /// ` (did you mean gpt2.yaml?)`, of what lies in the folders.
  std::string similar(const std::string& name) const {
    std::vector<std::string> names;
    std::error_code ignored;
    for (const auto& folder : folders_)
      for (const auto& entry : std::filesystem::directory_iterator{folder, ignored})
        if (const auto ending = entry.path().extension(); std::ranges::find(kEndings, ending) != kEndings.end())
          names.push_back(name.ends_with(ending.string()) ? entry.path().filename().string()
                                                          : entry.path().stem().string());
    std::ranges::sort(names);
    const auto meant = nearest(name, names);
    return meant ? " (did you mean " + *meant + "?)" : "";
  }

  std::vector<std::filesystem::path> folders_;
};

}  // namespace ddpxx
