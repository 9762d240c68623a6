// ddpxx/launch/agent/filtered_log.hpp — the file of the lines of all ranks that contain one of some texts.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>

namespace ddpxx::detail {

/// Writes the lines that contain one of the texts to a file, each with its prefix.
class FilteredLog {
 public:
  /// Errors  `storage` if the file cannot be made.
  FilteredLog(const std::filesystem::path& path, std::vector<std::string> texts)
      : file_{File::open_to_append(path, Errc::storage)}, texts_{std::move(texts)} {}

  /// Errors  `storage`.
  void take(std::string_view prefix, std::string_view line) {
    if (std::ranges::none_of(texts_, [&](const auto& text) { return line.find(text) != std::string_view::npos; }))
      return;
    file_.write(bytes_of(std::string{prefix}.append(line) + '\n'));
  }

 private:
  File file_;
  std::vector<std::string> texts_;
};

}  // namespace ddpxx::detail
