// ddpxx/config/files/text_cursor.hpp — a cursor that moves over a JSON text token by token, and knows its line and
// column.
#pragma once

#include <cstddef>
#include <string_view>

#include <ddpxx/config/files/document.hpp>

namespace ddpxx::detail {

class TextCursor {
 public:
  explicit TextCursor(std::string_view text) : text_{text} {}

  const TextMark& mark() const noexcept { return mark_; }
  bool is_at_end() const noexcept { return mark_.offset >= text_.size(); }
  std::string_view rest() const { return text_.substr(mark_.offset); }

  /// The character at the cursor; NUL at the end, and only there in a text that was checked.
  char peek() const noexcept { return is_at_end() ? '\0' : text_[mark_.offset]; }

  /// Moves over one byte.
  void take() {
    if (is_at_end()) return;
    const bool line_ends = text_[mark_.offset] == '\n';
    mark_ = {mark_.offset + 1, mark_.line + (line_ends ? 1 : 0), line_ends ? 0 : mark_.column + 1};
  }
  void skip_blanks() { skip_any_of(" \t\r\n"); }

  /// Moves over blanks, and over commas and colons that a parser has accepted.
  void skip_to_token() { skip_any_of(" \t\r\n,:"); }

  /// Moves over a number, a name or another word, and returns it.
  std::string_view take_word() {
    const auto start = mark_.offset;
    while (is_word(peek())) take();
    return text_.substr(start, mark_.offset - start);
  }

  /// Moves over a text in double quotes, with its quotes.
  void take_string() {
    for (take(); !is_at_end() && peek() != '"'; take())
      if (peek() == '\\') take();
    take();
  }

 private:
  static bool is_word(char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    return letter || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
  }
  void skip_any_of(std::string_view characters) {
    while (!is_at_end() && characters.find(peek()) != std::string_view::npos) take();
  }

  std::string_view text_;
  TextMark mark_{};
};

}  // namespace ddpxx::detail
