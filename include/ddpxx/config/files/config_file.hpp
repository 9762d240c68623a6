// ddpxx/config/files/config_file.hpp — reads config files in their language, and the files that they include.
//
// `include: base.yaml` or `include: [model.yaml, ../data.json]` at the top level of a file reads those files before it,
// so that the including file overrides them. Names are relative to the folder of the including file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ddpxx/config/files/document_text.hpp>
#include <ddpxx/config/files/json.hpp>
#include <ddpxx/config/files/python_file.hpp>
#include <ddpxx/config/files/yaml.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx::detail {

/// The entries of the file, without its includes. A name that ends in .json is read as JSON, one that ends in .py as
/// nanoGPT's Python, any other as YAML. An empty file has no entries and a notice. `order` is the file's order among
/// the sources.
/// Errors  `config`, naming the path and the reason, if the file cannot be read or has more than 16 MiB.
inline SourceEntries read_config_file(const std::filesystem::path& path, std::size_t order);

/// The entries of the file and of all files that it includes, in the order in which they apply: `order`, `order` + 1,
/// ... A file that is included several times is read for the first include only. A missing file, a file that includes
/// itself, and more than 16 levels are problems at the position of the include; a file from another folder gets a
/// notice.
/// Errors  those of read_config_file, for the file itself.
inline std::vector<SourceEntries> read_config_files(const std::filesystem::path& path, std::size_t order);

inline SourceEntries read_config_file(const std::filesystem::path& path, std::shared_ptr<ConfigSource> source) {
  const auto text = read_config_bytes(path);
  const auto ending = path.extension();
  auto entries = ending == ".json" ? read_json(text, std::move(source))
                 : ending == ".py" ? read_python(text, std::move(source))
                                   : read_yaml(text, std::move(source));
  if (entries.list.empty() && entries.problems.empty()) {
    auto& notice = entries.notices.emplace_back();
    notice.place = {entries.source, 1, 1};
    notice.text = "this file says nothing";
  }
  return entries;
}

inline std::shared_ptr<ConfigSource> source_of(const std::filesystem::path& path, std::size_t order) {
  return std::make_shared<ConfigSource>(ConfigSource{.order = order, .name = path.string()});
}

class IncludeReader {
 public:
  explicit IncludeReader(std::size_t order) : order_{order} {}

  std::vector<SourceEntries> read(const std::filesystem::path& path) && {
    read_file(path);
    return std::move(all_);
  }

 private:
  /// The path by which a file is recognised under each of its names.
  static std::filesystem::path identity(const std::filesystem::path& path) {
    std::error_code error;
    auto canonical = std::filesystem::canonical(path, error);
    return error ? path.lexically_normal() : canonical;
  }

  /// Reads the files that the file includes, and then appends its own entries.
  void read_file(const std::filesystem::path& path) {
    const auto source = source_of(path, 0);
    auto entries = read_config_file(path, source);
    const auto is_include = [](const SourceEntry& entry) { return lies_in(entry.path, "include"); };
    open_.push_back({identity(path), path});
    for (const auto& entry : entries.list)
      if (is_include(entry)) include_all(entries, entry);
    std::erase_if(entries.list, is_include);
    read_.push_back(open_.back().identity);
    open_.pop_back();
    source->order = order_++;
    all_.push_back(std::move(entries));
  }

  void include_all(SourceEntries& entries, const SourceEntry& entry) {
    const auto& value = entry.value;
    const bool is_nested = entry.path != "include";
    if (is_nested || (value.kind != RawValue::Kind::text && value.kind != RawValue::Kind::list) || is_null(value))
      return complain(entries, entry.keys.back(), "include takes the name of a file, or a list of names");
    if (value.kind == RawValue::Kind::text) return include(entries, value);
    for (const auto& item : value.items) {
      if (item.kind == RawValue::Kind::text && !is_null(item))
        include(entries, item);
      else
        complain(entries, item.place, "include takes names of files");
    }
  }

  void include(SourceEntries& entries, const RawValue& name) {
    constexpr std::size_t kMaxDepth = 16;
    if (name.text.empty()) return complain(entries, name.place, "the name of a file is missing");
    const auto path = (open_.back().shown.parent_path() / name.text).lexically_normal();
    const auto file = identity(path);
    if (const auto first = std::ranges::find(open_, file, &Open::identity); first != open_.end())
      return complain(entries, name.place, "includes itself: " + chain(first) + path.string());
    if (std::ranges::find(read_, file) != read_.end()) return;
    if (open_.size() > kMaxDepth)
      return complain(entries, name.place, "more than 16 levels of files that include files");
    notice_if_elsewhere(entries, name, file);
    try {
      read_file(path);
    } catch (const Error& error) {
      complain(entries, name.place, error.what());
    }
  }

  /// Adds a problem without a path: the entries of a missing file are unknown, so rules between fields are not checked.
  static void complain(SourceEntries& entries, const Position& place, std::string why) {
    entries.problems.push_back({place, "", std::move(why)});
  }

  void notice_if_elsewhere(SourceEntries& entries, const RawValue& name, const std::filesystem::path& file) const {
    const auto from_here = file.lexically_relative(open_.back().identity.parent_path());
    const std::filesystem::path written{name.text};
    const bool climbs = std::ranges::find(written, std::filesystem::path{".."}) != written.end();
    const bool is_outside = from_here.empty() || *from_here.begin() == "..";
    if (climbs || is_outside || written.is_absolute())
      entries.notices.push_back({name.place, "include", shown(name.text) + " is " + file.string()});
  }

  struct Open {
    std::filesystem::path identity;
    std::filesystem::path shown;
  };

  std::string chain(std::vector<Open>::const_iterator first) const {
    std::string text;
    for (; first != open_.end(); ++first) text += first->shown.string() + " -> ";
    return text;
  }

  std::size_t order_;
  std::vector<SourceEntries> all_;
  std::vector<Open> open_;                   // the chain of includes, from the first file to the current one
  std::vector<std::filesystem::path> read_;  // files that are read, with their includes
};

inline SourceEntries read_config_file(const std::filesystem::path& path, std::size_t order) {
  return read_config_file(path, source_of(path, order));
}

inline std::vector<SourceEntries> read_config_files(const std::filesystem::path& path, std::size_t order) {
  return IncludeReader{order}.read(path);
}

}  // namespace ddpxx::detail
