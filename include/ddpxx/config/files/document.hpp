// ddpxx/config/files/document.hpp — a config file's document as a tree with positions. The readers of YAML and JSON
// build it, and its limits hold for both.
#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/text/source.hpp>

namespace ddpxx::detail {

/// A position in a text; offset, line and column are in bytes, from 0.
struct TextMark {
  std::size_t offset = 0;
  std::size_t line = 0;
  std::size_t column = 0;
};

/// Thrown for a document that is refused; read_yaml() and read_json() catch it.
class DocumentRefusal final : public std::exception {
 public:
  DocumentRefusal(const TextMark& mark, std::string why) : mark_{mark}, why_{std::move(why)} {}
  const TextMark& mark() const noexcept { return mark_; }
  const char* what() const noexcept override { return why_.c_str(); }

 private:
  TextMark mark_;
  std::string why_;
};

/// Refuses a text with a NUL character, as the escape `\u0000` makes it: the system would end a file's name there.
/// Errors  DocumentRefusal.
inline void refuse_nul_character(const TextMark& mark, std::string_view text) {
  if (text.find('\0') != std::string_view::npos)
    throw DocumentRefusal{mark, "this text has a NUL character, which no setting can have"};
}

struct DocumentNode {
  struct Child {
    const DocumentNode* key = nullptr;  ///< The key; null in a list.
    const DocumentNode* value = nullptr;
    TextMark at{};  ///< Position of the value; for an alias, that of the alias and not of its anchor.
  };
  RawValue::Kind kind = RawValue::Kind::none;
  TextMark mark{};
  std::string text{};
  bool quoted = false;
  bool in_brackets = false;  ///< Written as `[a, b]` or `{a: b}`.
  std::vector<Child> children{};
};

/// Builds a tree from the events of a parser: a group takes keys and values in turn.
/// Errors  DocumentRefusal if a limit is exceeded or a key is not a text.
class DocumentTree {
 public:
  static constexpr std::size_t kMaxNodes = 100'000;
  static constexpr std::size_t kMaxDepth = 64;

  /// The root; null for an empty document.
  const DocumentNode* root() const noexcept { return root_; }

  /// The innermost open list or group; null outside of all.
  const DocumentNode* innermost() const { return open_.empty() ? nullptr : open_.back().node; }

  /// The innermost open bracket, for a message about an unclosed one.
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

  DocumentNode& add(const TextMark& mark, RawValue::Kind kind) {
    if (nodes_.size() == kMaxNodes) throw DocumentRefusal{mark, "more than 100000 values"};
    auto& node = nodes_.emplace_back();
    node.kind = kind;
    node.mark = mark;
    attach(&node, mark);
    return node;
  }

  /// Opens a list or a group, to which the following nodes are added until close().
  DocumentNode& open(const TextMark& mark, RawValue::Kind kind) {
    if (open_.size() == kMaxDepth) throw DocumentRefusal{mark, "nested more than 64 levels deep"};
    auto& node = add(mark, kind);
    open_.push_back({&node});
    return node;
  }
  void close() { open_.pop_back(); }

  /// Adds a node to the innermost list or group; a node that is in the tree already gets a second edge.
  void attach(const DocumentNode* node, const TextMark& mark) {
    if (open_.empty()) {
      root_ = node;
      return;
    }
    auto& [parent, key] = open_.back();
    if (parent->kind == RawValue::Kind::list) {
      parent->children.push_back({nullptr, node, mark});
    } else if (key) {
      parent->children.push_back({*key, node, mark});
      key.reset();
    } else {
      if (node->kind == RawValue::Kind::none) throw DocumentRefusal{mark, "a key is missing"};
      if (node->kind != RawValue::Kind::text) throw DocumentRefusal{mark, "a key must be a plain text"};
      key = node;
    }
  }

 private:
  struct Open {
    DocumentNode* node;
    std::optional<const DocumentNode*> key{};  // a key whose value is still missing
  };

  std::deque<DocumentNode> nodes_;  // a deque, because of pointers to nodes
  std::vector<Open> open_;
  const DocumentNode* root_ = nullptr;
};

}  // namespace ddpxx::detail
