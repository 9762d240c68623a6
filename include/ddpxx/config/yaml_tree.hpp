// ddpxx/config/yaml_tree.hpp — one YAML document as a tree with places; yaml-cpp finds the tokens, the limits are ours.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>

#include <ddpxx/config/source.hpp>

namespace ddpxx {

struct YamlNode {
  struct Child {
    const YamlNode* key = nullptr;  ///< None in a list.
    const YamlNode* value = nullptr;
    YAML::Mark at;  ///< Of the value; where an alias stands, not what it stands for.
  };
  GivenValue::Kind kind = GivenValue::Kind::none;
  YAML::Mark mark;
  std::string text;
  bool quoted = false;
  bool in_brackets = false;  ///< `[a, b]` or `{a: b}`.
  std::vector<Child> children;
};

/// Builds the tree from yaml-cpp's events. An alias is a second edge to the same node.
/// Errors  YAML::ParserException, for what we refuse as for what yaml-cpp does.
class YamlTree final : public YAML::EventHandler {
 public:
  static constexpr std::size_t kMostNodes = 100'000;
  static constexpr std::size_t kDeepest = 64;

  /// None for an empty document.
  const YamlNode* root() const noexcept { return root_; }

  /// The innermost bracket that is open, to tell where an unclosed one began.
  const YamlNode* open_bracket() const {
    for (auto it = open_.rbegin(); it != open_.rend(); ++it)
      if (it->node->in_brackets) return it->node;
    return nullptr;
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (started_) refuse(mark, "a second document starts here; a configuration is one");
    started_ = true;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(mark, anchor, GivenValue::Kind::none); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const YamlNode* target = anchors_.at(anchor);
    for (const auto& open : open_)
      if (open.node == target) refuse(mark, "an alias inside of what it stands for");
    attach(target, mark);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    const bool quoted = tag == "!" || tag == "tag:yaml.org,2002:str";
    if (!quoted) refuse_tag(mark, tag);
    auto& node = add(mark, anchor, GivenValue::Kind::text);
    node.text = text;
    node.quoted = quoted;
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    open(mark, tag, anchor, style, GivenValue::Kind::list);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    open(mark, tag, anchor, style, GivenValue::Kind::group);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  struct Open {
    YamlNode* node;
    std::optional<const YamlNode*> key{};  // read, and waiting for its value
  };

  [[noreturn]] static void refuse(const YAML::Mark& mark, const std::string& why) {
    throw YAML::ParserException{mark, why};
  }
  static void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") refuse(mark, "the tag " + shown(tag) + " is not supported");
  }

  YamlNode& add(const YAML::Mark& mark, YAML::anchor_t anchor, GivenValue::Kind kind) {
    if (nodes_.size() == kMostNodes) refuse(mark, "more than 100000 values");
    auto& node = nodes_.emplace_back();
    node.kind = kind;
    node.mark = mark;
    if (anchor != 0) anchors_[anchor] = &node;
    attach(&node, mark);
    return node;
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value style,
            GivenValue::Kind kind) {
    refuse_tag(mark, tag);
    if (open_.size() == kDeepest) refuse(mark, "nested more than 64 levels deep");
    auto& node = add(mark, anchor, kind);
    node.in_brackets = style == YAML::EmitterStyle::Flow;
    open_.push_back({&node});
  }

  void attach(const YamlNode* node, const YAML::Mark& mark) {
    if (open_.empty()) {
      root_ = node;
      return;
    }
    auto& [parent, key] = open_.back();
    if (parent->kind == GivenValue::Kind::list) {
      parent->children.push_back({nullptr, node, mark});
    } else if (key) {
      parent->children.push_back({*key, node, mark});
      key.reset();
    } else {
      if (node->kind == GivenValue::Kind::none) refuse(mark, "a key is missing");
      if (node->kind != GivenValue::Kind::text) refuse(mark, "a key must be a plain text");
      key = node;
    }
  }

  std::deque<YamlNode> nodes_;  // a deque, for nodes are pointed to
  std::vector<Open> open_;
  std::map<YAML::anchor_t, const YamlNode*> anchors_;
  const YamlNode* root_ = nullptr;
  bool started_ = false;
};

}  // namespace ddpxx
