// ddpxx/data/alphabet.hpp — the characters of a training text: converts text to ids and back.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/data/utf8.hpp>

namespace ddpxx {

/// The distinct characters of a text, sorted by their code points; the id of a character is its index.
/// A snapshot records the alphabet as a setting, so that a program can encode and decode without the training text:
///
///     const auto alphabet = Alphabet::find(load_snapshot(place)->settings);
class Alphabet {
 public:
  /// The distinct characters of `text`.
  explicit Alphabet(std::string_view text) {
    std::vector<std::uint8_t> seen(kNumCodePoints);
    for_each_code_point(text, [&seen](char32_t character) { seen[character] = 1; });
    for (std::size_t character = 0; character < seen.size(); ++character)
      if (seen[character] != 0) characters_.push_back(static_cast<char32_t>(character));
  }

  std::int64_t size() const noexcept { return std::ssize(characters_); }
  std::span<const char32_t> characters() const noexcept { return characters_; }

  /// The ids of the characters of `text`.
  /// Errors  `data` naming a character that is not in the alphabet.
  std::vector<std::int64_t> encode(std::string_view text) const;

  /// The text whose characters have these ids, in UTF-8.
  /// Errors  `data` for an id outside [0, size).
  std::string decode(std::span<const std::int64_t> ids) const;

  /// The alphabet as a setting that a resumed run must match: all characters in their order. A backslash is written
  /// `\\`, a newline `\n`, and any other control character as its code point in hexadecimal digits, such as `\u{9}`.
  Setting recorded() const;

  /// The alphabet in a snapshot's settings; none if the run had no alphabet.
  /// Errors  `data` when the recorded text is damaged.
  static std::optional<Alphabet> find(const Settings& settings);

  static Error unknown_character(char32_t character) {
    std::string shown;
    append_utf8(shown, character);
    return {Errc::data, "the character '" + shown + "' does not occur in the training text"};
  }

  friend bool operator==(const Alphabet&, const Alphabet&) = default;

 private:
  static constexpr std::string_view kPath = "the alphabet";

  static bool is_control(char32_t character) {
    return character < 0x20 || (character >= 0x7F && character < 0xA0) || character == 0x2028 || character == 0x2029;
  }
  static std::string unescape(std::string_view recorded);

  std::vector<char32_t> characters_;
};

inline std::vector<std::int64_t> Alphabet::encode(std::string_view text) const {
  std::vector<std::int64_t> ids;
  for_each_code_point(text, [&](char32_t character) {
    const auto place = std::lower_bound(characters_.begin(), characters_.end(), character);
    if (place == characters_.end() || *place != character) throw unknown_character(character);
    ids.push_back(place - characters_.begin());
  });
  return ids;
}

inline std::string Alphabet::decode(std::span<const std::int64_t> ids) const {
  std::string text;
  for (const auto id : ids) {
    if (id < 0 || id >= size())
      throw Error{Errc::data, "character " + std::to_string(id) + " of " + std::to_string(size())};
    append_utf8(text, characters_[static_cast<std::size_t>(id)]);
  }
  return text;
}

inline Setting Alphabet::recorded() const {
  std::string text;
  for (const auto character : characters_) {
    if (character == U'\\') {
      text += "\\\\";
    } else if (character == U'\n') {
      text += "\\n";
    } else if (is_control(character)) {
      char digits[8];
      const auto code = static_cast<std::uint32_t>(character);
      const auto end = std::to_chars(std::begin(digits), std::end(digits), code, 16).ptr;
      text.append("\\u{").append(std::begin(digits), end).append("}");
    } else {
      append_utf8(text, character);
    }
  }
  return {std::string{kPath}, text, Resume::must_match, {}};
}

inline std::optional<Alphabet> Alphabet::find(const Settings& settings) {
  for (const auto& setting : settings)
    if (setting.path == kPath) return Alphabet{unescape(setting.value)};
  return std::nullopt;
}

inline std::string Alphabet::unescape(std::string_view recorded) {
  const auto damaged = [] { return Error{Errc::data, "the recorded alphabet is damaged: a backslash has no meaning"}; };
  std::string text;
  while (!recorded.empty()) {
    const auto plain = recorded.substr(0, recorded.find('\\'));
    text += plain;
    recorded.remove_prefix(plain.size());
    if (recorded.empty()) break;
    if (recorded.starts_with("\\\\") || recorded.starts_with("\\n")) {
      text += recorded[1] == 'n' ? '\n' : '\\';
      recorded.remove_prefix(2);
      continue;
    }
    const auto close = recorded.find('}');
    if (!recorded.starts_with("\\u{") || close == std::string_view::npos) throw damaged();
    std::uint32_t code = 0;
    const auto [end, error] = std::from_chars(recorded.data() + 3, recorded.data() + close, code, 16);
    if (error != std::errc{} || end != recorded.data() + close || code >= kNumCodePoints) throw damaged();
    append_utf8(text, static_cast<char32_t>(code));
    recorded.remove_prefix(close + 1);
  }
  return text;
}

}  // namespace ddpxx
