// ddpxx/config/files/document_flattener.hpp — turns a document's tree into a list of entries.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/files/document.hpp>
#include <ddpxx/config/files/document_text.hpp>
#include <ddpxx/config/path.hpp>
#include <ddpxx/config/text/source.hpp>

namespace ddpxx::detail {

/// Walks the tree and lists its entries. Aliases are followed, and their nodes count each time. A plain key `<<`
/// merges: it stands for the keys of the group, or of the list of groups, behind it, except those that its own group or
/// an earlier group of the list has.
class DocumentFlattener {
 public:
  /// Checks a node at a position for problems that the parser does not find.
  using CheckNode = std::function<std::optional<ConfigProblem>(const DocumentNode& node, const TextMark& at)>;

  explicit DocumentFlattener(const DocumentText& text, CheckNode check_node = {})
      : text_{text}, check_node_{std::move(check_node)}, entries_{.source = text.source()} {}

  /// The entries. `not_a_group` is the message for a document that is a list or a text.
  SourceEntries flatten(const DocumentNode& root, std::string_view not_a_group) && {
    if (root.kind == RawValue::Kind::group)
      visit(root, "", {});
    else if (root.kind != RawValue::Kind::none)
      complain(text_.place(root.mark), "", std::string{not_a_group});
    return std::move(entries_);
  }

 private:
  using Children = std::vector<const DocumentNode::Child*>;

  static bool merges(const DocumentNode::Child& child) { return child.key->text == "<<" && !child.key->quoted; }

  void complain(Position place, std::string_view path, std::string why) {
    constexpr std::size_t kMaxShown = 100;
    entries_.problems.push_back({std::move(place), std::string{path.substr(0, kMaxShown)}, std::move(why)});
  }

  void visit(const DocumentNode& group, const std::string& path, const std::vector<Position>& keys) {
    for (const auto* child : children_of(group, path, keys.size())) {
      if (is_too_large_) return;
      const auto key_place = place_of(*child->key, child->key->mark);
      const auto key_path = path_in(path, child->key->text);
      if (!may_visit(*child->key, key_path, key_place, keys.size())) continue;
      auto places = keys;
      places.resize(keys.size() + path_segments(child->key->text).size(), key_place);
      if (child->value->kind == RawValue::Kind::group && !child->value->children.empty())
        visit(*child->value, key_path, places);
      else
        entries_.list.push_back({key_path, places, value_of(*child->value, child->at, key_place, places.size())});
    }
  }

  /// The group's own children in order, then the merged ones.
  Children children_of(const DocumentNode& group, const std::string& path, std::size_t depth) {
    Children result;
    std::set<std::string_view> names;
    const DocumentNode::Child* merge = nullptr;
    for (const auto& child : group.children) {
      if (is_too_large_) return {};
      if (!merges(child)) {
        names.insert(child.key->text);
        result.push_back(&child);
      } else if (std::exchange(merge, &child) != nullptr) {
        complain(text_.place(child.key->mark), path_in(path, "<<"), "is given twice; write a list of groups");
      }
    }
    if (merge == nullptr) return result;
    const bool is_list = merge->value->kind == RawValue::Kind::list;
    const std::vector<DocumentNode::Child> alone{*merge};
    for (const auto& base : is_list ? merge->value->children : alone) {
      const auto place = text_.place(base.at);
      if (base.value->kind != RawValue::Kind::group) {
        complain(place, path_in(path, "<<"), "merges groups only; write <<: *name or <<: [*one, *other]");
        continue;
      }
      if (!may_count(place, depth + 1)) return {};
      for (const auto* child : children_of(*base.value, path, depth + 1))
        if (may_count(place, depth) && names.insert(child->key->text).second) result.push_back(child);
    }
    return result;
  }

  bool may_visit(const DocumentNode& key, const std::string& path, const Position& place, std::size_t depth) {
    constexpr std::size_t kMaxPathBytes = 512;
    if (!may_count(place, depth) || !may_hold(place, key.text)) return false;
    if (path.size() > kMaxPathBytes) {
      complain(place, path, "the path to this key is too long");
      return false;
    }
    const auto [first, is_new] = seen_.try_emplace(path, place);
    if (!is_new) complain(place, path, "is given twice; the first is at " + to_text(first->second));
    return is_new;
  }

  /// Counts an entry; false if there are too many, since a few lines of aliases can exceed any memory.
  bool may_count(const Position& place, std::size_t depth) {
    require(++visited_ <= DocumentTree::kMaxNodes, place, "more than 100000 values, counting what aliases stand for");
    require(depth < DocumentTree::kMaxDepth, place, "nested more than 64 levels deep, through aliases");
    return !is_too_large_;
  }
  bool may_hold(const Position& place, std::string_view text) {
    bytes_ += text.size();
    require(bytes_ <= kMaxConfigBytes, place, "more than 16 MiB of text, counting what aliases stand for");
    return !is_too_large_;
  }
  void require(bool small, const Position& place, const char* why) {
    if (!small && !std::exchange(is_too_large_, true)) complain(place, "", why);
  }

  RawValue value_of(const DocumentNode& node, const TextMark& at, const Position& key_place, std::size_t depth) {
    RawValue value{.kind = node.kind, .quoted = node.quoted};
    value.place = node.kind == RawValue::Kind::none ? key_place : place_of(node, at);
    if (may_hold(value.place, node.text)) value.text = node.text;
    if (node.kind != RawValue::Kind::list) return value;
    for (const auto& item : node.children)
      if (may_count(value.place, depth)) value.items.push_back(value_of(*item.value, item.at, value.place, depth + 1));
    return value;
  }

  Position place_of(const DocumentNode& node, const TextMark& at) {
    if (!check_node_ || is_too_large_) return text_.place(at);
    if (auto problem = check_node_(node, at)) entries_.problems.push_back(*problem);
    return text_.place(at);
  }

  const DocumentText& text_;
  CheckNode check_node_;
  SourceEntries entries_;
  std::map<std::string, Position> seen_;
  std::size_t visited_ = 0;
  std::size_t bytes_ = 0;
  bool is_too_large_ = false;
};

}  // namespace ddpxx::detail
