// ddpxx/core/log.hpp — log lines that know their rank.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include <ddpxx/core/utf8.hpp>

namespace ddpxx {

/// The text with everything a terminal could obey (line ends, escapes, malformed UTF-8) written out: `\n`, `\x1b`.
inline std::string harmless(std::string_view text);

/// A text of several lines, each of them made `harmless`; the line ends stay.
std::string harmless_lines(std::string_view text);

enum class LogLevel { info, warning };

/// One line of the log. `text` has no line end, and nothing that a terminal would obey.
struct LogLine {
  LogLevel level = LogLevel::info;
  int rank = 0;
  std::string_view text;
};

/// A program's own destination of log lines.
using LogSink = std::function<void(const LogLine&)>;

/// Sends the log lines of this process to `sink` from now on; an empty function sends them to stderr, as at the start.
/// May be called in any thread. Several threads may call `sink` at a time, and it may itself write log lines. A line
/// for which `sink` throws goes to stderr.
void set_log_sink(LogSink sink);

/// Writes lines for one rank: information from rank 0 only, warnings from every rank and with its name in front.
/// A line leaves in one piece, so that the lines of several processes on one terminal do not mix.
class Log {
 public:
  /// Writes to the sink of the process; see `set_log_sink`.
  explicit Log(int rank) : rank_{rank} {}
  Log(int rank, std::ostream& stream) : rank_{rank}, stream_{&stream} {}

  void info(std::string_view text) const {
    if (rank_ == 0) write(LogLevel::info, harmless(text));
  }
  void warn(std::string_view text) const { write(LogLevel::warning, harmless(text)); }

  int rank() const noexcept { return rank_; }

 private:
  void write(LogLevel level, const std::string& text) const;

  int rank_;
  std::ostream* stream_ = nullptr;
};

namespace detail {

struct LogSinkState {
  std::mutex mutex;
  std::shared_ptr<const LogSink> sink;  // shared with the threads that are calling it
};
/// Never destroyed: threads may write log lines while the process ends.
inline LogSinkState& log_sink_state() {
  static auto* const state = new LogSinkState;
  return *state;
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

inline void set_log_sink(LogSink sink) {
  auto& state = detail::log_sink_state();
  auto shared = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
  const std::lock_guard lock{state.mutex};
  state.sink.swap(shared);
}

inline void Log::write(LogLevel level, const std::string& text) const {
  if (stream_ == nullptr) {
    const auto sink = [] {
      auto& state = detail::log_sink_state();
      const std::lock_guard lock{state.mutex};
      return state.sink;
    }();
    try {
      if (sink) return (*sink)({level, rank_, text});
    } catch (const std::exception&) {  // the line goes to stderr
    }
  }
  const auto line = (level == LogLevel::warning ? "[rank" + std::to_string(rank_) + "] warning: " : "") + text + '\n';
  (stream_ == nullptr ? std::cerr : *stream_).write(line.data(), static_cast<std::streamsize>(line.size())).flush();
}

}  // namespace ddpxx
