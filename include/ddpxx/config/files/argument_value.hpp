// ddpxx/config/files/argument_value.hpp — reads the value of `key=value`: plain text, quoted text, a list in brackets
// or in Python's parentheses, or a map in braces.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/config/files/document.hpp>
#include <ddpxx/config/text/source.hpp>

namespace ddpxx::detail {

/// A value, or the problem that makes the text invalid.
struct ArgumentValue {
  RawValue value{};
  std::string problem{};
};

/// The entries of `{a: 1, 'b c': [2]}`, or the problem that makes the text invalid.
struct ArgumentMap {
  std::vector<std::pair<std::string, RawValue>> entries{};
  std::string problem{};
};

enum class Brackets { are_text, are_list, are_python };

/// Reads a value. Single and double quotes are removed, and in quotes `\n`, `\t`, `\\`, `\"` and `\'` are one
/// character. If brackets are lists, `[1, 'a, b', [2]]` and `(1, (2, 3))` are lists; within square brackets a
/// parenthesis is an ordinary character. With Python's rules a parenthesis opens a tuple anywhere, and without a comma
/// it is only grouping, and other escapes of Python are a problem. More than 100000 items are a problem.
inline ArgumentValue read_argument_value(std::string_view text, Brackets brackets, const Position& place);

/// Reads a map in braces.
inline ArgumentMap read_argument_map(std::string_view text, const Position& place);

class ArgumentReader {
 public:
  ArgumentReader(std::string_view text, const Position& place, Brackets brackets = Brackets::are_list)
      : text_{text}, place_{place}, is_python_{brackets == Brackets::are_python} {}

  ArgumentValue list() {
    opens_ = is_python_ || text_.starts_with('(') ? "([" : "[";
    const char end = text_.starts_with('(') ? ')' : ']';
    auto value = take_list();
    if (problem_.empty() && !text_.empty()) problem_ = std::string{"nothing may follow the closing "} + end;
    return {std::move(value), std::move(problem_)};
  }

  ArgumentMap map() {
    ArgumentMap map;
    text_.remove_prefix(1);
    for (skip_spaces(); problem_.empty() && !text_.starts_with('}'); skip_spaces()) {
      auto key = is_quote() ? take_quoted().text : take_plain(":,}");
      if (!text_.starts_with(':')) problem_ = "an entry of the map is written key: value";
      if (!problem_.empty()) break;
      text_.remove_prefix(1);
      skip_spaces();
      map.entries.emplace_back(std::move(key), take_item(",}"));
      skip_spaces();
      if (text_.starts_with(','))
        text_.remove_prefix(1);
      else if (!text_.starts_with('}') && problem_.empty())
        problem_ = text_.empty() ? "this { is never closed" : "a comma is missing in the map";
    }
    if (problem_.empty()) text_.remove_prefix(1);
    if (problem_.empty() && !text_.empty()) problem_ = "nothing may follow the closing }";
    map.problem = std::move(problem_);
    return map;
  }

  /// Reads a text. A quote at the start counts only with its partner at the end: `'tis` is plain text.
  ArgumentValue text() {
    const auto whole = text_;
    if (is_quote()) {
      auto value = take_quoted();
      if (problem_.empty() && text_.empty()) return {std::move(value), {}};
    }
    return {plain(whole), is_python_ ? std::move(problem_) : std::string{}};
  }

 private:
  bool is_quote() const { return text_.starts_with('"') || text_.starts_with('\''); }
  void skip_spaces() {
    while (text_.starts_with(' ')) text_.remove_prefix(1);
  }
  RawValue plain(std::string_view text) const {
    return {.kind = RawValue::Kind::text, .text = std::string{text}, .place = place_};
  }

  RawValue take_quoted() {
    const char quote = text_[0];
    RawValue value{.kind = RawValue::Kind::text, .quoted = true, .place = place_};
    for (text_.remove_prefix(1); !text_.empty(); text_.remove_prefix(1)) {
      if (text_[0] == quote) {
        text_.remove_prefix(1);
        return value;
      }
      const char next = text_.size() > 1 ? text_[1] : '\0';
      if (is_python_ && text_[0] == '\\' && std::string_view{"abfrvxuUN01234567"}.find(next) != std::string_view::npos)
        problem_ = std::string{"the escape \\"} + next + " is not read: write the character itself";
      const bool escape = text_[0] == '\\' && std::string_view{"nt\\\"'"}.find(next) != std::string_view::npos;
      if (escape) text_.remove_prefix(1);
      value.text += !escape ? text_[0] : next == 'n' ? '\n' : next == 't' ? '\t' : next;
    }
    problem_ = "a quote is never closed";
    return value;
  }

  RawValue take_list() {
    constexpr std::size_t kMaxDepth = 64;
    RawValue list{.kind = RawValue::Kind::list, .place = place_};
    const char open = text_[0], close = open == '(' ? ')' : ']';
    const std::string ends{',', close};
    bool has_comma = false;
    text_.remove_prefix(1);
    if (++depth_ > kMaxDepth) problem_ = "nested more than 64 levels deep";
    for (skip_spaces(); problem_.empty() && !text_.starts_with(close); skip_spaces()) {
      list.items.push_back(take_item(ends));
      skip_spaces();
      const bool is_comma = text_.starts_with(',');
      has_comma = has_comma || is_comma;
      if (is_comma)
        text_.remove_prefix(1);
      else if (!text_.starts_with(close) && problem_.empty())
        problem_ = text_.empty() ? std::string{"this "} + open + " is never closed" : "a comma is missing in the list";
    }
    if (problem_.empty()) text_.remove_prefix(1);
    --depth_;
    if (is_python_ && open == '(' && !has_comma && list.items.size() == 1) return RawValue{list.items.front()};
    return list;
  }

  RawValue take_item(std::string_view ends) {
    if (++count_ > DocumentTree::kMaxNodes) problem_ = "more than 100000 values";
    if (!text_.empty() && opens_.find(text_[0]) != std::string_view::npos) return take_list();
    if (is_quote()) return take_quoted();
    auto item = plain(take_plain(ends));
    if (item.text.empty())
      problem_ = ends.ends_with('}') ? "an entry of the map is empty" : "an item of the list is empty";
    return item;
  }

  /// Takes the text up to one of `ends`; `${...}` is taken whole.
  std::string take_plain(std::string_view ends) {
    std::size_t end = 0;
    for (bool inside = false; end < text_.size() && (inside || ends.find(text_[end]) == std::string_view::npos); ++end)
      inside = inside ? text_[end] != '}' : text_.substr(end).starts_with("${");
    std::string item{text_.substr(0, end)};
    text_.remove_prefix(end);
    while (item.ends_with(' ')) item.pop_back();
    return item;
  }

  std::string_view text_;
  Position place_;
  std::string_view opens_ = "[";  // characters that begin a list within a list
  bool is_python_;
  std::size_t depth_ = 0;
  std::size_t count_ = 0;  // number of items, at any depth
  std::string problem_;
};

inline ArgumentValue read_argument_value(std::string_view text, Brackets brackets, const Position& place) {
  ArgumentReader reader{text, place, brackets};
  const bool opens = text.starts_with('[') || text.starts_with('(');
  return brackets != Brackets::are_text && opens ? reader.list() : reader.text();
}

inline ArgumentMap read_argument_map(std::string_view text, const Position& place) {
  return ArgumentReader{text, place}.map();
}

}  // namespace ddpxx::detail
