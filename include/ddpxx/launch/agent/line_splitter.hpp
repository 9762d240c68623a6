// ddpxx/launch/agent/line_splitter.hpp — splits a stream of bytes into lines.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace ddpxx::detail {

/// What ends a piece of a stream.
enum class LineEnd {
  newline,
  carriage_return,  ///< The next piece is written over this one, as the next state of a progress bar is.
};

/// Collects bytes and passes on whole lines, without the newline. A carriage return that no newline follows ends a
/// piece as well. A line longer than `kMaxLine` is passed on in pieces, so that a program that writes no newline does
/// not fill the memory.
class LineSplitter {
 public:
  static constexpr std::size_t kMaxLine = 1 << 20;

  /// Calls `on_line(std::string_view, LineEnd)` for each piece that `bytes` completes.
  void feed(std::string_view bytes, auto&& on_line) {
    while (!bytes.empty()) {
      if (has_return_ && bytes.front() != '\n') pass_on(on_line, LineEnd::carriage_return);
      const std::size_t newline = std::min(bytes.find('\n'), bytes.size());
      const std::size_t end = std::min(bytes.substr(0, newline).find('\r'), newline);
      const std::size_t take = std::min(end, kMaxLine - rest_.size());
      rest_ += bytes.substr(0, take);
      bytes.remove_prefix(take);
      const bool ends = take == end && !bytes.empty();
      if (ends && bytes.front() == '\r')
        has_return_ = true;  // the next byte decides whether it belongs to the end of a line
      else if (ends || rest_.size() == kMaxLine)
        end_line(on_line);
      if (ends) bytes.remove_prefix(1);
    }
  }

  /// Passes on the bytes after the last end of a piece, if there are any.
  void flush(auto&& on_line) {
    if (!rest_.empty() || has_return_) end_line(on_line);
  }

 private:
  void end_line(auto&& on_line) {
    if (has_return_) rest_ += '\r';
    pass_on(on_line, LineEnd::newline);
  }
  void pass_on(auto&& on_line, LineEnd end) {
    on_line(std::string_view{rest_}, end);
    rest_.clear();
    has_return_ = false;
  }

  std::string rest_;
  bool has_return_ = false;  // a carriage return follows `rest_`
};

}  // namespace ddpxx::detail
