// ddpxx/core/log.hpp — log lines that know their rank.
#pragma once

#include <cstddef>
#include <iostream>
#include <ostream>
#include <string>
#include <string_view>

#include <ddpxx/core/utf8.hpp>

namespace ddpxx {

/// The text with everything a terminal could obey (line ends, escapes, malformed UTF-8) written out: `\n`, `\x1b`.
inline std::string harmless(std::string_view text);

/// The same for a text of several lines: their ends stay.
std::string harmless_lines(std::string_view text);

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
    const std::size_t length = utf8_length(text);
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

inline std::string harmless_lines(std::string_view text) {
  std::string result;
  for (auto end = text.find('\n'); end != text.npos; end = text.find('\n')) {
    result += harmless(text.substr(0, end)) + '\n';
    text.remove_prefix(end + 1);
  }
  return result + harmless(text);
}

}  // namespace ddpxx
