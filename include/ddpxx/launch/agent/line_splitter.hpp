// ddpxx/launch/agent/line_splitter.hpp — splits a stream of bytes into lines.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace ddpxx::detail {

/// Collects bytes and passes on whole lines, without the newline. A line longer than `kMaxLine` is passed on in pieces,
/// so that a program that writes no newline does not fill the memory.
class LineSplitter {
 public:
  static constexpr std::size_t kMaxLine = 1 << 20;

  /// Calls `on_line(std::string_view)` for each line that `bytes` completes.
  void feed(std::string_view bytes, auto&& on_line) {
    while (!bytes.empty()) {
      const std::size_t end = bytes.find('\n');
      const std::size_t left = kMaxLine - rest_.size();
      const bool ends = end != std::string_view::npos && end <= left;
      const std::size_t take = ends ? end : std::min(bytes.size(), left);
      rest_ += bytes.substr(0, take);
      bytes.remove_prefix(ends ? take + 1 : take);
      if (ends || rest_.size() == kMaxLine) flush_any(on_line);
    }
  }

  /// Passes on the bytes after the last newline, if there are any.
  void flush(auto&& on_line) {
    if (!rest_.empty()) flush_any(on_line);
  }

 private:
  void flush_any(auto&& on_line) {
    on_line(std::string_view{rest_});
    rest_.clear();
  }

  std::string rest_;
};

}  // namespace ddpxx::detail
