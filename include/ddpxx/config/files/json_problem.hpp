// ddpxx/config/files/json_problem.hpp — explains why a text is not JSON, for people who write it by hand.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <ddpxx/config/files/document.hpp>
#include <ddpxx/config/files/text_cursor.hpp>
#include <ddpxx/config/text/source.hpp>

namespace ddpxx::detail {

/// Kinds of tokens in a JSON text.
enum class JsonToken { none, opening, closing, key, string, word };

/// The state of a parser where it stopped.
struct JsonState {
  JsonToken last = JsonToken::none;         ///< The last token that it accepted.
  const DocumentNode* innermost = nullptr;  ///< The innermost open list or object.
  TextMark word_mark{};                     ///< Position of the last number or name.
  std::string_view word{};                  ///< The last number or name, as a whole.
  bool is_overflow = false;                 ///< The next token is a number that a double cannot hold.
};

/// Finds the reason why a text is not JSON, between the last accepted token, behind which the cursor stands, and the
/// end of the next token.
class JsonRefusal {
 public:
  JsonRefusal(const TextCursor& cursor, const JsonState& state) : cursor_{cursor}, state_{state} {}

  [[noreturn]] void operator()() {
    // The parser has accepted the first characters of words such as `01`, `0x10` and `truely`.
    if (state_.last == JsonToken::word && !nlohmann::json::accept(state_.word))
      refuse_word(state_.word_mark, state_.word);
    find_next();
    if (state_.last == JsonToken::key) {
      if (cursor_.peek() != ':') refuse("a colon is missing in front of this");
      take_and_find_next();
    } else if (state_.last != JsonToken::none && state_.last != JsonToken::opening) {
      pass_comma();
    }
    explain_item();
  }

 private:
  [[noreturn]] static void refuse_at(const TextMark& mark, const std::string& why) { throw DocumentRefusal{mark, why}; }
  [[noreturn]] void refuse(const std::string& why) const { refuse_at(cursor_.mark(), why); }
  [[noreturn]] static void refuse_word(const TextMark& mark, std::string_view word) {
    auto letters = std::string{word.substr(std::min(word.find_first_not_of("+-"), word.size()))};
    std::ranges::transform(letters, letters.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    const bool is_number =
        letters == "nan" || letters == "inf" || letters == "infinity" || word.size() > letters.size();
    if (is_number || (word[0] >= '0' && word[0] <= '9') || word[0] == '.')
      refuse_at(mark, shown(word) + " is not a number in JSON; what others read as one needs double quotes");
    refuse_at(mark, shown(word) + " is not a JSON value; a text needs double quotes");
  }

  bool in_list() const { return state_.innermost != nullptr && state_.innermost->kind == RawValue::Kind::list; }

  /// Moves to the next token, if there is one.
  void find_next() {
    cursor_.skip_blanks();
    const auto rest = cursor_.rest();
    if (rest.starts_with("//") || rest.starts_with("/*") || rest.starts_with('#'))
      refuse("JSON has no comments; YAML has");
    if (!rest.empty()) return;
    if (state_.innermost == nullptr) refuse("a value is missing here");
    refuse_at(state_.innermost->mark, in_list() ? "this [ is never closed" : "this { is never closed");
  }
  void take_and_find_next() {
    cursor_.take();
    find_next();
  }

  /// Moves over the comma behind a value, or explains what is there instead.
  void pass_comma() {
    if (state_.innermost == nullptr) refuse("something follows the end; a configuration is one document");
    const char closing = in_list() ? ']' : '}';
    if (cursor_.peek() == ']' || cursor_.peek() == '}')
      refuse(std::string{"a "} + closing + " is expected here, to close what is open");
    if (cursor_.peek() != ',') refuse("a comma is missing in front of this");
    const auto comma = cursor_.mark();
    take_and_find_next();
    if (cursor_.peek() == closing) refuse_at(comma, "nothing follows this comma; JSON has none behind the last value");
  }

  /// Explains what is wrong at a position that needs a key or a value.
  [[noreturn]] void explain_item() {
    if (cursor_.peek() == '"') explain_string();
    const bool wants_key = state_.innermost != nullptr && !in_list() && state_.last != JsonToken::key;
    if (wants_key) refuse("a key in double quotes is expected here");
    const auto mark = cursor_.mark();
    const char c = cursor_.peek();
    if (std::string_view{",:]}"}.find(c) != std::string_view::npos) refuse("a value is missing here");
    if (c == '\'') refuse("a text stands in double quotes");
    const auto word = cursor_.take_word();
    if (state_.is_overflow) refuse_at(mark, shown(word) + " does not fit a floating-point number");
    if (word.empty()) refuse_at(mark, "no value starts with this character; a text needs double quotes");
    refuse_word(mark, word);
  }

  /// Explains what is wrong in a string, such as a missing end.
  [[noreturn]] void explain_string() {
    const auto quote = cursor_.mark();
    TextMark high_mark{};
    bool is_high = false;  // the last escape was the first half of a surrogate pair
    for (cursor_.take(); !cursor_.is_at_end() && cursor_.peek() != '"' && cursor_.peek() != '\n';) {
      const auto mark = cursor_.mark();
      if (static_cast<unsigned char>(cursor_.peek()) < 0x20)
        refuse("a control character; in a JSON text it is written as \\t or \\u0009");
      if (cursor_.peek() != '\\') {
        if (is_high) break;
        cursor_.take();
        continue;
      }
      const auto unit = take_escape();
      const bool is_low = unit >= 0xDC00 && unit < 0xE000;
      if (is_low != is_high) refuse_at(is_high ? high_mark : mark, kHalf);
      is_high = unit >= 0xD800 && unit < 0xDC00;
      high_mark = mark;
    }
    if (is_high) refuse_at(high_mark, kHalf);
    refuse_at(quote, "this quote is never closed");
  }

  /// Returns the UTF-16 unit of `\uXXXX`; 0 for another escape.
  unsigned take_escape() {
    constexpr std::size_t kDigits = 4;
    const auto mark = cursor_.mark();
    const auto rest = cursor_.rest().substr(1);
    const bool is_known = !rest.empty() && std::string_view{"\"\\/bfnrtu"}.find(rest[0]) != std::string_view::npos;
    unsigned unit = 0;
    std::size_t digits = 0;
    for (; rest.starts_with('u') && digits < kDigits && digits + 1 < rest.size(); ++digits) {
      const auto digit = std::string_view{"0123456789abcdef0123456789ABCDEF"}.find(rest[digits + 1]);
      if (digit == std::string_view::npos) break;
      unit = unit * 16 + static_cast<unsigned>(digit % 16);
    }
    if (!is_known || (rest[0] == 'u' && digits < kDigits))
      refuse_at(mark, "no escape of JSON, which are \\\" \\\\ \\/ \\b \\f \\n \\r \\t and \\uXXXX");
    for (std::size_t i = 0; i < 2 + digits; ++i) cursor_.take();
    return unit;
  }

  static constexpr const char* kHalf = "half of a character; \\uD800 to \\uDBFF and \\uDC00 to \\uDFFF come in pairs";

  TextCursor cursor_;
  JsonState state_;
};

/// Throws the reason why a text is not JSON. `state` is the parser's state, and the cursor stands behind the last token
/// that it accepted.
/// Errors  DocumentRefusal, always.
[[noreturn]] inline void refuse_json(const TextCursor& cursor, const JsonState& state) { JsonRefusal{cursor, state}(); }

}  // namespace ddpxx::detail
