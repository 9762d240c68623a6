// ddpxx/data/alphabet.hpp — the characters of a training text: converts text to ids and back.
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/setting.hpp>

namespace ddpxx {

/// The distinct characters of a text, sorted by their code points; the id of a character is its index.
/// A snapshot records the alphabet as a setting, so that a program can encode and decode without the training text:
///
///     const auto alphabet = Alphabet::find(load_snapshot(place)->run.settings);
class Alphabet {
 public:
  /// The distinct characters of `text`.
  explicit Alphabet(std::string_view text);

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

  static Error unknown_character(char32_t character);

  friend bool operator==(const Alphabet&, const Alphabet&) = default;

 private:
  static constexpr std::string_view kPath = "the alphabet";

  static bool is_control(char32_t character) {
    return character < 0x20 || (character >= 0x7F && character < 0xA0) || character == 0x2028 || character == 0x2029;
  }
  static std::string unescape(std::string_view recorded);

  std::vector<char32_t> characters_;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/data/alphabet_inl.hpp>
#endif
