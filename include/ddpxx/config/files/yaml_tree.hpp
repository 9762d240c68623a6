// ddpxx/config/files/yaml_tree.hpp — builds a document's tree from the events of yaml-cpp.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/mark.h>

#include <ddpxx/config/files/document.hpp>
#include <ddpxx/config/text/source.hpp>

namespace ddpxx::detail {

/// Converts a mark of yaml-cpp, which counts from 0 and has negative numbers for nodes without a position.
inline TextMark mark_of(const YAML::Mark& mark) {
  const auto from_zero = [](int position) { return static_cast<std::size_t>(position < 0 ? 0 : position); };
  return {from_zero(mark.pos), from_zero(mark.line), from_zero(mark.column)};
}

/// Builds the tree. An alias is a second edge to the same node.
/// Errors  DocumentRefusal if a limit is exceeded, and for a NUL character.
class YamlTree final : public YAML::EventHandler {
 public:
  const DocumentTree& tree() const noexcept { return tree_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (started_) refuse(mark, "a second document starts here; a configuration is one");
    started_ = true;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add(mark, anchor, RawValue::Kind::none); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const DocumentNode* target = anchors_.at(anchor);
    if (tree_.is_open(target)) refuse(mark, "an alias inside of what it stands for");
    tree_.attach(target, mark_of(mark));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    const bool quoted = tag == "!" || tag == "tag:yaml.org,2002:str";
    if (!quoted) refuse_tag(mark, tag);
    refuse_nul_character(mark_of(mark), text);
    auto& node = add(mark, anchor, RawValue::Kind::text);
    node.text = text;
    node.quoted = quoted;
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    open(mark, tag, anchor, style, RawValue::Kind::list);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    open(mark, tag, anchor, style, RawValue::Kind::group);
  }
  void OnSequenceEnd() override { tree_.close(); }
  void OnMapEnd() override { tree_.close(); }

 private:
  [[noreturn]] static void refuse(const YAML::Mark& mark, const std::string& why) {
    throw DocumentRefusal{mark_of(mark), why};
  }
  static void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!") refuse(mark, "the tag " + shown(tag) + " is not supported");
  }

  DocumentNode& add(const YAML::Mark& mark, YAML::anchor_t anchor, RawValue::Kind kind) {
    auto& node = tree_.add(mark_of(mark), kind);
    if (anchor != 0) anchors_[anchor] = &node;
    return node;
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value style,
            RawValue::Kind kind) {
    refuse_tag(mark, tag);
    auto& node = tree_.open(mark_of(mark), kind);
    if (anchor != 0) anchors_[anchor] = &node;
    node.in_brackets = style == YAML::EmitterStyle::Flow;
  }

  DocumentTree tree_;
  std::map<YAML::anchor_t, const DocumentNode*> anchors_;
  bool started_ = false;
};

}  // namespace ddpxx::detail
