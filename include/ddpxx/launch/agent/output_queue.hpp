// ddpxx/launch/agent/output_queue.hpp — queues lines for the launcher's standard output and error.
#pragma once

#include <cerrno>
#include <cstddef>
#include <deque>
#include <limits.h>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace ddpxx::detail {

/// Keeps whole lines in order and writes them only if a write does not block, so that a paused terminal does not keep
/// the launcher from handling a signal or a failed rank. Both outputs share one queue: if both are one terminal, their
/// lines do not mix. Lines for a closed output are dropped.
class OutputQueue {
 public:
  /// Size in bytes from which on the launcher stops reading from the ranks, so that they wait for the terminal.
  static constexpr std::size_t kFull = 1 << 20;

  /// Call it if another program redraws a line on the terminal `fd`: from now on each write to `fd` first clears that
  /// line, and the program draws it again below.
  void clear_drawn_line_on(int fd) { drawn_on_.insert(fd); }

  /// `end` is a newline, or a carriage return if the next line is to be written over this one.
  void push(int fd, std::string_view prefix, std::string_view line, char end = '\n') {
    if (closed_.contains(fd)) return;
    const std::size_t size = prefix.size() + line.size() + 1;
    // A pipe that is writable takes up to PIPE_BUF bytes in one piece, without blocking.
    if (pieces_.empty() || pieces_.back().fd != fd || pieces_.back().text.size() + size > PIPE_BUF) start_piece(fd);
    std::string& text = pieces_.back().text;
    const auto state = states_.find(fd);
    if (state != states_.end() && state->second != prefix) {  // of another rank, and to be kept
      text += '\n';
      ++size_;
    }
    text.append(prefix).append(line) += end;
    size_ += size;
    if (end == '\r')
      states_.insert_or_assign(fd, std::string{prefix});
    else
      states_.erase(fd);
  }

  bool full() const noexcept { return size_ >= kFull; }

  /// The descriptor of the next line; -1 if the queue is empty.
  int waiting_for() const noexcept { return pieces_.empty() ? -1 : pieces_.front().fd; }

  /// Writes one piece; to be called when `waiting_for()` is writable.
  void write_some() {
    if (pieces_.empty()) return;
    const Piece& piece = pieces_.front();
    const auto rest = std::string_view{piece.text}.substr(written_);
    const ssize_t size = ::write(piece.fd, rest.data(), rest.size() < PIPE_BUF ? rest.size() : PIPE_BUF);
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (size < 0) return drop(piece.fd);
    written_ += static_cast<std::size_t>(size);
    size_ -= static_cast<std::size_t>(size);
    if (written_ < piece.text.size()) return;
    pieces_.pop_front();
    written_ = 0;
  }

 private:
  struct Piece {
    int fd;
    std::string text;
  };

  void start_piece(int fd) {
    static constexpr std::string_view kClearLine = "\r\x1b[K";
    const auto start = drawn_on_.contains(fd) ? kClearLine : std::string_view{};
    pieces_.push_back({fd, std::string{start}});
    size_ += start.size();
  }

  void drop(int fd) {
    closed_.insert(fd);
    size_ += std::exchange(written_, 0);  // the first piece is the one that failed
    std::erase_if(pieces_, [&](const Piece& piece) {
      if (piece.fd == fd) size_ -= piece.text.size();
      return piece.fd == fd;
    });
  }

  std::deque<Piece> pieces_;
  std::size_t size_ = 0;
  std::size_t written_ = 0;  // bytes of the first piece that are written
  std::set<int> closed_, drawn_on_;
  std::map<int, std::string> states_;  // prefix of a descriptor's last line if that ended with a carriage return
};

}  // namespace ddpxx::detail
