// ddpxx/launch/agent/rank_stream.hpp — forwards one output of a rank to the launcher's output and to files.
#pragma once

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/launch/agent/filtered_log.hpp>
#include <ddpxx/launch/agent/line_splitter.hpp>
#include <ddpxx/launch/agent/output_queue.hpp>

namespace ddpxx::detail {

/// Where the bytes of a rank's output go.
struct StreamTargets {
  int console = -1;               ///< Descriptor of the launcher; -1 for none.
  std::string prefix = {};        ///< Text before each line on the console and in `filtered`.
  std::optional<File> file = {};  ///< Gets the bytes as they are.
  FilteredLog* filtered = nullptr;
};

/// A pipe from a rank; passes on its lines and the states of its progress bars, and keeps the last lines for a report.
class RankStream {
 public:
  static constexpr std::size_t kLastLines = 10;

  /// Errors  `peer` if the system cannot make a pipe.
  explicit RankStream(StreamTargets targets) : targets_{std::move(targets)} {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      throw Error{Errc::peer,
                  "no pipe for a rank's output: " + std::string{std::strerror(errno)} + " (limit: ulimit -n)"};
    read_end_ = Descriptor{ends[0]};
    write_end_ = Descriptor{ends[1]};
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }

  /// The end that becomes the rank's output. The launcher closes it once the rank has started.
  Descriptor& write_end() noexcept { return write_end_; }

  /// Descriptor that is readable if the rank has written; -1 once no process can write.
  int descriptor() const noexcept { return read_end_.get(); }

  /// Moves the result of one read to the queue; false if nothing was there.
  bool read_some(OutputQueue& queue) {
    std::array<char, 1 << 16> bytes;
    ssize_t size = 0;
    do size = ::read(read_end_.get(), bytes.data(), bytes.size());
    while (size < 0 && errno == EINTR);
    if (size <= 0) {
      if (size == 0) read_end_.close();
      return false;
    }
    if (targets_.file) {
      const auto text = std::as_bytes(std::span{bytes}.first(static_cast<std::size_t>(size)));
      write(queue, [&] { targets_.file->write(text); });
    }
    splitter_.feed({bytes.data(), static_cast<std::size_t>(size)},
                   [&](std::string_view line, LineEnd end) { take(line, end, queue); });
    return true;
  }

  /// Call it after the rank's end: reads the rest of the pipe, including an unfinished last line. Does not wait for
  /// processes that still have the pipe open, and reads at most what fits into a pipe.
  void finish(OutputQueue& queue) {
    static constexpr int kReadsOfALargestPipe = 16;
    for (int i = 0; i < kReadsOfALargestPipe && read_end_ && read_some(queue); ++i) {
    }
    read_end_.close();
    splitter_.flush([&](std::string_view line, LineEnd end) { take(line, end, queue); });
  }

  /// The last kLastLines lines, cut to 400 bytes each.
  std::vector<std::string> last_lines() const { return {last_lines_.begin(), last_lines_.end()}; }

 private:
  /// Writes to files; after an error, as on a full disk, the rank goes on without its files.
  template <class Write>
  void write(OutputQueue& queue, const Write& to_file) {
    try {
      to_file();
    } catch (const Error& error) {
      targets_.file.reset();
      targets_.filtered = nullptr;
      queue.push(STDERR_FILENO, "ddpxx-run: ", std::string{error.what()} + "; the output no longer goes to files");
    }
  }

  void take(std::string_view line, LineEnd end, OutputQueue& queue) {
    if (targets_.console >= 0) show(line, end, queue);
    if (targets_.filtered != nullptr) write(queue, [&] { targets_.filtered->take(targets_.prefix, line); });
    if (end == LineEnd::carriage_return) return;  // the next piece is written over this one
    if (line.ends_with('\r')) line.remove_suffix(1);
    static constexpr std::size_t kMaxWidth = 400;
    last_lines_.emplace_back(line.substr(0, kMaxWidth));
    if (last_lines_.size() > kLastLines) last_lines_.pop_front();
  }

  /// Writes a piece to the console. States of a progress bar that follow each other quickly are held back, and written
  /// together with a later one.
  void show(std::string_view piece, LineEnd end, OutputQueue& queue) {
    static constexpr std::chrono::milliseconds kRedraw{200};
    static constexpr std::size_t kMaxHeld = 1 << 16;
    const std::string_view text = held_.empty() ? piece : std::string_view{held_.append(piece)};
    if (end == LineEnd::newline) {
      queue.push(targets_.console, targets_.prefix, text);
    } else {
      const auto now = Clock::now();
      if ((piece.empty() || now - drawn_ < kRedraw) && held_.size() < kMaxHeld) {
        if (held_.empty()) held_ = piece;
        held_.append(1, '\r').append(targets_.prefix);
        return;
      }
      drawn_ = now;
      queue.push(targets_.console, targets_.prefix, text, '\r');
    }
    held_.clear();
  }

  using Clock = std::chrono::steady_clock;

  StreamTargets targets_;
  std::string held_;  // states of a progress bar that the console has not got yet, each but the first with its prefix
  Clock::time_point drawn_ = {};  // when the console last got a state
  Descriptor read_end_, write_end_;
  LineSplitter splitter_;
  std::deque<std::string> last_lines_;
};

/// The last lines of a file; empty if it cannot be read.
inline std::vector<std::string> last_lines_of(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  std::array<char, 8'192> bytes;
  const off_t length = ::lseek(file.get(), 0, SEEK_END);
  const off_t from = length > static_cast<off_t>(bytes.size()) ? length - static_cast<off_t>(bytes.size()) : 0;
  const ssize_t size = ::pread(file.get(), bytes.data(), bytes.size(), from);
  if (size <= 0) return {};
  std::vector<std::string> lines;
  LineSplitter splitter;
  bool is_cut = from > 0;  // the first line may lack its start
  const auto keep = [&](std::string_view line, LineEnd end) {
    if (end == LineEnd::newline)
      lines.emplace_back(line.substr(0, line.size() - (line.ends_with('\r') ? 1 : 0)));
    else if (lines.empty())
      is_cut = false;  // it begins behind the state that ends here
  };
  splitter.feed({bytes.data(), static_cast<std::size_t>(size)}, keep);
  splitter.flush(keep);
  if (is_cut && lines.size() > 1) lines.erase(lines.begin());
  if (lines.size() > RankStream::kLastLines) lines.erase(lines.begin(), lines.end() - RankStream::kLastLines);
  return lines;
}

}  // namespace ddpxx::detail
