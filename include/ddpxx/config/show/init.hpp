// ddpxx/config/show/init.hpp — a first configuration file: every key with its default, and its help as a comment.
#pragma once

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/path.hpp>
#include <ddpxx/config/show/help.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/core/utf8.hpp>

namespace ddpxx::detail {

/// The defaults as YAML, which reads back equal. Keys of alternatives that are not the default are comments, and so are
/// secrets, which should not be in a file. `schema_file` is the path of the schema for editors.
inline std::string starter_yaml(const ConfigTable& table, std::string_view schema_file);

/// The text in lines of at most 120 columns that start with `start`.
inline std::string wrapped(const std::string& text, const std::string& start) {
  constexpr std::size_t kWidth = 120;
  std::istringstream words{text};
  std::string lines, line = start;
  for (std::string word; words >> word; line += word) {
    const bool is_full = count_characters(line) + 1 + count_characters(word) > kWidth;
    if (line.size() > start.size() && is_full) lines += std::exchange(line, start) + '\n';
    if (line.size() > start.size()) line += ' ';
  }
  return line == start ? lines : lines + line + '\n';
}

class StarterWriter {
 public:
  explicit StarterWriter(const ConfigTable& table) : table_{table} {}

  std::string write(std::string_view schema_file) && {
    text_ = "# yaml-language-server: $schema=" + std::string{schema_file} + "\n#\n" +
            "# Every setting with its default. What is left out keeps it; files say what differs.\n\n";
    for (const auto& row : table_.rows) add(row);
    return std::move(text_);
  }

 private:
  void add(const ConfigRow& row) {
    const bool is_awake = table_.is_active(row, table_.defaults);
    if (!is_awake && (row.place.variant != asleep_.variant || row.place.alternative != asleep_.alternative))
      begin_alternative(row);
    margin_ =
        is_awake ? "" : std::string(2 * path_segments(table_.variants[row.place.variant].path).size(), ' ') + "# ";
    const auto groups = open_groups(row.path, is_awake ? open_ : open_asleep_);
    wrap(groups, explanation(row) + (row.facts.is_secret ? ": a secret, name a variable that holds it" : ""));
    const auto name = std::string{name_of(row.path)} + ": ";
    if (row.facts.is_secret)
      line(groups, "# " + name + "${oc.env:NAME}");
    else
      line(groups, name + table_.print_default(row));
  }

  void begin_alternative(const ConfigRow& row) {
    const auto& variant = table_.variants[row.place.variant];
    asleep_ = row.place;
    open_asleep_ = path_segments(variant.path);
    text_ += std::string(2 * open_asleep_.size(), ' ') + "# with name: " + variant.names[row.place.alternative] + '\n';
  }

  /// Writes the groups around a path that are not open yet; returns how many there are.
  std::size_t open_groups(std::string_view path, std::vector<std::string>& open) {
    auto groups = path_segments(path);
    groups.pop_back();
    const auto shared = static_cast<std::size_t>(std::ranges::mismatch(groups, open).in1 - groups.begin());
    for (std::size_t i = shared; i < groups.size(); ++i) {
      if (i == 0) text_ += '\n';
      const auto group_path = path_of(groups, i + 1);
      const auto* group = table_.find_group(group_path);
      const bool is_variant = table_.find(path_in(group_path, "name")) != nullptr;  // its row `name` has the help
      if (group != nullptr && !is_variant) wrap(i, std::string{group->help});
      line(i, groups[i] + ':');
    }
    open = groups;
    return groups.size();
  }

  /// The start of a line: its indentation, behind a `#` in the first column of the comment for keys that are commented
  /// out.
  std::string start_of_line(std::size_t depth) const {
    const auto indent = margin_.empty() ? 0 : margin_.size() - 2;
    return margin_ + std::string(2 * depth - std::min(2 * depth, indent), ' ');
  }
  void line(std::size_t depth, const std::string& text) { text_ += start_of_line(depth) + text + '\n'; }
  void wrap(std::size_t depth, const std::string& text) { text_ += wrapped(text, start_of_line(depth) + "# "); }

  const ConfigTable& table_;
  std::string text_;
  std::string margin_;
  FieldPlace asleep_{};
  std::vector<std::string> open_;
  std::vector<std::string> open_asleep_;
};

inline std::string starter_yaml(const ConfigTable& table, std::string_view schema_file) {
  return StarterWriter{table}.write(schema_file);
}

}  // namespace ddpxx::detail
