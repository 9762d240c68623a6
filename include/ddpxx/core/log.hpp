// ddpxx/core/log.hpp — log lines that know their rank.
#pragma once

#include <cstddef>
#include <iostream>
#include <ostream>
#include <string>
#include <string_view>

namespace ddpxx {

/// The text with everything a terminal could obey (line ends, escapes, malformed UTF-8) written out: `\n`, `\x1b`.
inline std::string harmless(std::string_view text);

/// Writes lines for one rank: information from rank 0 only, warnings from every rank and with its name in front.
/// A line leaves in one piece, so that the lines of several processes on one terminal do not mix.
class Log {
 public:
  explicit Log(int rank, std::ostream& stream = std::cerr) : rank_{rank}, stream_{&stream} {}

  void info(std::string_view text) const {
    if (rank_ == 0) write(harmless(text));
  }
  void warn(std::string_view text) const { write("[rank" + std::to_string(rank_) + "] warning: " + harmless(text)); }

  int rank() const noexcept { return rank_; }

 private:
  void write(std::string line) const {
    line += '\n';
    stream_->write(line.data(), static_cast<std::streamsize>(line.size())).flush();
  }

  int rank_;
  std::ostream* stream_;
};

namespace detail {

/// Bytes of the well-formed UTF-8 character that `text` starts with; 0 when it starts with none.
inline std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80U) return 1;
  if (first >= 0xC2U && first <= 0xDFU) return follows(1) ? 2 : 0;
  if (first >= 0xE0U && first <= 0xEFU) {
    const bool overlong = first == 0xE0U && second < 0xA0U, surrogate = first == 0xEDU && second >= 0xA0U;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0U && first <= 0xF4U) {
    const bool overlong = first == 0xF0U && second < 0x90U, beyond = first == 0xF4U && second >= 0x90U;
    return follows(1) && follows(2) && follows(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

/// True for the control characters of ASCII (but the tab) and of Latin-1, which in UTF-8 are C2 80 to C2 9F.
inline bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return (first < 0x20 && first != '\t') || first == 0x7F;
  return first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

}  // namespace detail

inline std::string harmless(std::string_view text) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = detail::utf8_length(text);
    const std::string_view character = text.substr(0, length == 0 ? 1 : length);
    text.remove_prefix(character.size());
    if (character == "\n") {
      result += "\\n";
    } else if (character == "\r") {
      result += "\\r";
    } else if (length != 0 && !detail::is_control(character)) {
      result += character;
    } else {
      for (const char c : character) {
        const auto byte = static_cast<unsigned char>(c);
        result += {'\\', 'x', kHex[byte >> 4U], kHex[byte & 0xFU]};
      }
    }
  }
  return result;
}

}  // namespace ddpxx
