// ddpxx/launch/agent/rank_stream.hpp — forwards one output of a rank to the launcher's output.
#pragma once

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/agent/line_splitter.hpp>
#include <ddpxx/launch/agent/output_queue.hpp>

namespace ddpxx::detail {

/// A pipe from a rank; passes on its lines, and keeps the last ones for a report.
class RankStream {
 public:
  static constexpr std::size_t kLastLines = 10;

  /// `target` is the descriptor of the launcher to which the lines go, each with `prefix`.
  /// Errors  `peer` if the system cannot make a pipe.
  RankStream(int target, std::string prefix) : target_{target}, prefix_{std::move(prefix)} {
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
    splitter_.feed({bytes.data(), static_cast<std::size_t>(size)}, [&](std::string_view line) { take(line, queue); });
    return true;
  }

  /// Call it after the rank's end: reads the rest of the pipe, including an unfinished last line. Does not wait for
  /// processes that still have the pipe open, and reads at most what fits into a pipe.
  void finish(OutputQueue& queue) {
    static constexpr int kReadsOfALargestPipe = 16;
    for (int i = 0; i < kReadsOfALargestPipe && read_end_ && read_some(queue); ++i) {
    }
    read_end_.close();
    splitter_.flush([&](std::string_view line) { take(line, queue); });
  }

  /// The last kLastLines lines, cut to 400 bytes each.
  std::vector<std::string> last_lines() const { return {last_lines_.begin(), last_lines_.end()}; }

 private:
  void take(std::string_view line, OutputQueue& queue) {
    queue.push(target_, prefix_, line);
    static constexpr std::size_t kMaxWidth = 400;
    last_lines_.emplace_back(line.substr(0, kMaxWidth));
    if (last_lines_.size() > kLastLines) last_lines_.pop_front();
  }

  int target_;
  std::string prefix_;
  Descriptor read_end_, write_end_;
  LineSplitter splitter_;
  std::deque<std::string> last_lines_;
};

/// The last lines of a file; empty if it cannot be read.
inline std::vector<std::string> last_lines_of(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  std::array<char, 8'192> bytes;
  const off_t end = ::lseek(file.get(), 0, SEEK_END);
  const off_t from = end > static_cast<off_t>(bytes.size()) ? end - static_cast<off_t>(bytes.size()) : 0;
  const ssize_t size = ::pread(file.get(), bytes.data(), bytes.size(), from);
  if (size <= 0) return {};
  std::vector<std::string> lines;
  LineSplitter splitter;
  const auto keep = [&](std::string_view line) { lines.emplace_back(line); };
  splitter.feed({bytes.data(), static_cast<std::size_t>(size)}, keep);
  splitter.flush(keep);
  if (from > 0 && lines.size() > 1) lines.erase(lines.begin());  // the first line may lack its start
  if (lines.size() > RankStream::kLastLines) lines.erase(lines.begin(), lines.end() - RankStream::kLastLines);
  return lines;
}

}  // namespace ddpxx::detail
