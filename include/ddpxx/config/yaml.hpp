// ddpxx/config/yaml.hpp — a YAML file into the list of what it says, with the place of every key and value.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <ddpxx/config/path.hpp>
#include <ddpxx/config/source.hpp>
#include <ddpxx/config/yaml_text.hpp>
#include <ddpxx/config/yaml_tree.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>

namespace ddpxx {

inline constexpr std::size_t kMostConfigBytes = std::size_t{16} << 20;

/// What a YAML text says. `name` stands in the messages; `order` is the file's place among the sources.
inline Said read_yaml_text(std::string_view text, std::string name, std::size_t order);

/// What the file says; an empty file says nothing.
/// Errors  `config`, naming the path and the reason, when the file cannot be read or has more than 16 MiB.
inline Said read_yaml_file(const std::filesystem::path& path, std::size_t order) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw Error{Errc::config, "cannot read " + path.string() + ": Is a directory"};
  const auto text = read_file(path, Errc::config, kMostConfigBytes + 1);
  if (text.size() > kMostConfigBytes)
    throw Error{Errc::config, "cannot read " + path.string() + ": more than 16 MiB is no configuration"};
  return read_yaml_text(text, path.string(), order);
}

namespace detail {

/// Walks the tree and writes down what it says. Aliases are followed, and what they stand for counts each time.
class YamlFlattener {
 public:
  explicit YamlFlattener(const YamlText& text) : text_{text}, said_{.source = text.source()} {}

  Said flatten(const YamlNode& root) && {
    if (root.kind == GivenValue::Kind::group)
      visit(root, "", {});
    else if (root.kind != GivenValue::Kind::none)
      complain(text_.place(root.mark), "",
               "a configuration has lines `key: value` (is the space after the colon missing?)");
    return std::move(said_);
  }

 private:
  void complain(Position place, std::string_view path, std::string why) {
    constexpr std::size_t kLongestShown = 100;
    said_.problems.push_back({std::move(place), std::string{path.substr(0, kLongestShown)}, std::move(why)});
  }

  void visit(const YamlNode& group, const std::string& path, const std::vector<Position>& keys) {
    for (const auto& child : group.children) {
      const auto key_path = path_in(path, child.key->text);
      const auto key_place = place_of(*child.key, child.key->mark);
      if (!may_visit(child.key->text, key_path, key_place, keys.size())) continue;
      auto places = keys;
      places.resize(keys.size() + path_segments(child.key->text).size(), key_place);
      if (child.value->kind == GivenValue::Kind::group && !child.value->children.empty())
        visit(*child.value, key_path, places);
      else
        said_.given.push_back({key_path, places, value_of(*child.value, child.at, key_place, places.size())});
    }
  }

  bool may_visit(const std::string& key, const std::string& path, const Position& place, std::size_t depth) {
    constexpr std::size_t kLongestPath = 512;
    if (!may_count(place, depth)) return false;
    std::string wrong;
    const auto [first, is_new] = seen_.try_emplace(path, place);
    if (!is_new) wrong = "is given twice; the first is at " + to_text(first->second);
    if (key == "<<") wrong = "merge keys are not supported; write the keys out";
    if (path.size() > kLongestPath) wrong = "the path to this key is too long";
    if (!wrong.empty()) complain(place, path, wrong);
    return wrong.empty();
  }

  /// A few lines of aliases can stand for more than any memory holds.
  bool may_count(const Position& place, std::size_t depth) {
    const bool small = ++visited_ <= YamlTree::kMostNodes, flat = depth < YamlTree::kDeepest;
    if (!(small && flat) && !std::exchange(is_too_large_, true))
      complain(place, "",
               small ? "nested more than 64 levels deep, through aliases"
                     : "more than 100000 values, counting what aliases stand for");
    return !is_too_large_;
  }

  GivenValue value_of(const YamlNode& node, const YAML::Mark& at, const Position& key_place, std::size_t depth) {
    GivenValue value{.kind = node.kind, .text = node.text, .quoted = node.quoted};
    value.place = node.kind == GivenValue::Kind::none ? key_place : place_of(node, at);
    if (node.kind != GivenValue::Kind::list) return value;
    for (const auto& item : node.children)
      if (may_count(value.place, depth)) value.items.push_back(value_of(*item.value, item.at, value.place, depth + 1));
    return value;
  }

  Position place_of(const YamlNode& node, const YAML::Mark& at) {
    if (auto problem = text_.problem_at(node, at)) said_.problems.push_back(*problem);
    return text_.place(at);
  }

  const YamlText& text_;
  Said said_;
  std::map<std::string, Position> seen_;
  std::size_t visited_ = 0;
  bool is_too_large_ = false;
};

}  // namespace detail

inline Said read_yaml_text(std::string_view text, std::string name, std::size_t order) {
  const YamlText yaml{text, std::move(name), order};
  if (const auto problem = yaml.problem_in_bytes()) return {.source = yaml.source(), .problems = {*problem}};
  YamlTree tree;
  try {
    std::istringstream stream{yaml.text()};
    YAML::Parser parser{stream};
    while (parser.HandleNextDocument(tree)) {
    }
  } catch (const YAML::ParserException& refusal) {
    return {.source = yaml.source(), .problems = {yaml.problem_of(refusal, tree.open_bracket())}};
  }
  if (tree.root() == nullptr) return {.source = yaml.source()};
  return detail::YamlFlattener{yaml}.flatten(*tree.root());
}

}  // namespace ddpxx
