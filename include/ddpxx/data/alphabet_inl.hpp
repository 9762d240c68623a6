// ddpxx/data/alphabet_inl.hpp — definitions of alphabet.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/data/alphabet.hpp>
#include <ddpxx/data/utf8.hpp>

namespace ddpxx {

DDPXX_INLINE Alphabet::Alphabet(std::string_view text) {
  std::vector<std::uint8_t> seen(kNumCodePoints);
  for_each_code_point(text, [&seen](char32_t character) { seen[character] = 1; });
  for (std::size_t character = 0; character < seen.size(); ++character)
    if (seen[character] != 0) characters_.push_back(static_cast<char32_t>(character));
}

DDPXX_INLINE Error Alphabet::unknown_character(char32_t character) {
  std::string shown;
  append_utf8(shown, character);
  return {Errc::data, "the character '" + shown + "' does not occur in the training text"};
}

DDPXX_INLINE std::vector<std::int64_t> Alphabet::encode(std::string_view text) const {
  std::vector<std::int64_t> ids;
  for_each_code_point(text, [&](char32_t character) {
    const auto place = std::lower_bound(characters_.begin(), characters_.end(), character);
    if (place == characters_.end() || *place != character) throw unknown_character(character);
    ids.push_back(place - characters_.begin());
  });
  return ids;
}

DDPXX_INLINE std::string Alphabet::decode(std::span<const std::int64_t> ids) const {
  std::string text;
  for (const auto id : ids) {
    if (id < 0 || id >= size())
      throw Error{Errc::data, "character " + std::to_string(id) + " of " + std::to_string(size())};
    append_utf8(text, characters_[static_cast<std::size_t>(id)]);
  }
  return text;
}

DDPXX_INLINE Setting Alphabet::recorded() const {
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

DDPXX_INLINE std::optional<Alphabet> Alphabet::find(const Settings& settings) {
  for (const auto& setting : settings)
    if (setting.path == kPath) return Alphabet{unescape(setting.value)};
  return std::nullopt;
}

DDPXX_INLINE std::string Alphabet::unescape(std::string_view recorded) {
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
