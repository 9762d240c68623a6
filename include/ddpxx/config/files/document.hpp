// ddpxx/config/files/document.hpp — a config file's document as a tree with places, in whichever language it is
// written; the readers of the languages find the tokens, the limits are the same for all.
#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/config/text/source.hpp>

namespace ddpxx {

/// A place in a text; all count from 0, and bytes.
struct TextMark {
  std::size_t offset = 0;
  std::size_t line = 0;
  std::size_t column = 0;
};

/// Says that a document cannot be taken. The reader of the text that throws it catches it, too.
class DocumentRefusal final : public std::exception {
 public:
  DocumentRefusal(const TextMark& mark, std::string why) : mark_{mark}, why_{std::move(why)} {}
  const TextMark& mark() const noexcept { return mark_; }
  const char* what() const noexcept override { return why_.c_str(); }

 private:
  TextMark mark_;
  std::string why_;
};

struct DocumentNode {
  struct Child {
    const DocumentNode* key = nullptr;  ///< None in a list.
    const DocumentNode* value = nullptr;
    TextMark at{};  ///< Of the value; where an alias stands, not what it stands for.
  };
  GivenValue::Kind kind = GivenValue::Kind::none;
  TextMark mark{};
  std::string text{};
  bool quoted = false;
  bool in_brackets = false;  ///< `[a, b]` or `{a: b}`.
  std::vector<Child> children{};
};

/// Builds a tree from the events of a parser: a group takes keys and values in turn.
/// Errors  DocumentRefusal, where a limit is passed or a key is none.
class DocumentTree {
 public:
  static constexpr std::size_t kMostNodes = 100'000;
  static constexpr std::size_t kDeepest = 64;

  /// None for an empty document.
  const DocumentNode* root() const noexcept { return root_; }

  /// The list or group that waits for its end; none outside of all.
  const DocumentNode* innermost() const { return open_.empty() ? nullptr : open_.back().node; }

  /// The innermost bracket that is open, to tell where an unclosed one began.
  const DocumentNode* open_bracket() const {
    for (auto it = open_.rbegin(); it != open_.rend(); ++it)
      if (it->node->in_brackets) return it->node;
    return nullptr;
  }

  bool is_open(const DocumentNode* node) const {
    for (const auto& open : open_)
      if (open.node == node) return true;
    return false;
  }

  DocumentNode& add(const TextMark& mark, GivenValue::Kind kind) {
    if (nodes_.size() == kMostNodes) throw DocumentRefusal{mark, "more than 100000 values"};
    auto& node = nodes_.emplace_back();
    node.kind = kind;
    node.mark = mark;
    attach(&node, mark);
    return node;
  }

  /// Adds a list or a group, which takes what follows until its end.
  DocumentNode& open(const TextMark& mark, GivenValue::Kind kind) {
    if (open_.size() == kDeepest) throw DocumentRefusal{mark, "nested more than 64 levels deep"};
    auto& node = add(mark, kind);
    open_.push_back({&node});
    return node;
  }
  void close() { open_.pop_back(); }

  /// Puts a node in its place in the tree; one that is there already gets a second edge.
  void attach(const DocumentNode* node, const TextMark& mark) {
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
      if (node->kind == GivenValue::Kind::none) throw DocumentRefusal{mark, "a key is missing"};
      if (node->kind != GivenValue::Kind::text) throw DocumentRefusal{mark, "a key must be a plain text"};
      key = node;
    }
  }

 private:
  struct Open {
    DocumentNode* node;
    std::optional<const DocumentNode*> key{};  // read, and waiting for its value
  };

  std::deque<DocumentNode> nodes_;  // a deque, for nodes are pointed to
  std::vector<Open> open_;
  const DocumentNode* root_ = nullptr;
};

}  // namespace ddpxx
