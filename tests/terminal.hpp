// tests/terminal.hpp — a pseudo-terminal that a test reads from.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <sys/ioctl.h>
#include <unistd.h>

/// Keeps what is written to the terminal until the test reads it. Sets TERM to a terminal that supports escape
/// sequences.
class Terminal {
 public:
  explicit Terminal(unsigned short columns = 80) {
    ::grantpt(master_);
    ::unlockpt(master_);
    slave_ = ::open(name().c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave_ < 0) throw std::runtime_error{"cannot make a terminal"};
    resize(columns);
    ::setenv("TERM", "xterm", 1);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() {
    ::close(slave_);
    ::close(master_);
  }
  void resize(unsigned short columns) const {
    const winsize size{24, columns, 0, 0};
    ::ioctl(slave_, TIOCSWINSZ, &size);
  }
  int descriptor() const { return slave_; }
  std::string name() const { return ::ptsname(master_); }
  /// Returns the output up to this end, or, if nothing is written for a minute, the output so far.
  std::string read_until(const std::string& end) const {
    std::string text;
    pollfd reader{.fd = master_, .events = POLLIN, .revents = 0};
    while (!text.ends_with(end) && ::poll(&reader, 1, 60'000) > 0) {
      char bytes[4096];
      const auto size = ::read(master_, bytes, sizeof bytes);
      if (size <= 0) break;
      text.append(bytes, static_cast<std::size_t>(size));
    }
    return text;
  }

 private:
  int master_ = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  int slave_ = -1;
};
