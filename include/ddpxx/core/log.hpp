// ddpxx/core/log.hpp — log lines that know their rank.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

#include <ddpxx/core/inline.hpp>

namespace ddpxx {

/// The text with everything a terminal could obey (line ends, escapes, malformed UTF-8) written out: `\n`, `\x1b`.
std::string harmless(std::string_view text);

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

 private:
  void write(LogLevel level, const std::string& text) const;

  int rank_;
  std::ostream* stream_ = nullptr;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/core/log_inl.hpp>
#endif
