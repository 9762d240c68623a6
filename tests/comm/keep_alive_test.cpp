// How the system watches a silent connection.
#include <algorithm>
#include <chrono>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/keep_alive.hpp>
#include <ddpxx/core/descriptor.hpp>

namespace ddpxx::keep_alive_test {
namespace {

using std::chrono::seconds;

int option(int socket, int name) {
  int value = 0;
  socklen_t length = sizeof value;
  ::getsockopt(socket, IPPROTO_TCP, name, &value, &length);
  return value;
}

// A network that loses every second packet loses three questions in a row within a minute or so.
TEST(KeepAlive, AsksManyTimesWithinItsLimit) {
  const Descriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  for (const auto& times : {KeepAlive{}, KeepAlive{.interval = seconds{1}, .attempts = 2},
                            KeepAlive{.interval = seconds{300}, .attempts = 12},
                            KeepAlive{.interval = seconds{1'000'000}, .attempts = 127}}) {
    set_keep_alive(socket.get(), times);
    const auto limit = times.limit().count();
    const int pause = option(socket.get(), TCP_KEEPINTVL), count = option(socket.get(), TCP_KEEPCNT);
    EXPECT_EQ(option(socket.get(), TCP_KEEPIDLE), pause);
    EXPECT_EQ(option(socket.get(), TCP_USER_TIMEOUT), limit * 1'000);
    EXPECT_GT(count * pause, limit - pause) << "the questions end before the limit of " << limit << " s";
    EXPECT_LE(count * pause, limit);
    EXPECT_GE(count, std::min<long>(limit, 60)) << "too few questions within " << limit << " s";
  }
  EXPECT_EQ(KeepAlive{}.limit(), seconds{15});
  EXPECT_EQ((KeepAlive{.interval = std::chrono::milliseconds{100}, .attempts = 1}.limit()), seconds{1});
}

}  // namespace
}  // namespace ddpxx::keep_alive_test
