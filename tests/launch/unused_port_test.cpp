#include "../unused_port.hpp"

#include <cstdint>
#include <netinet/in.h>
#include <sys/socket.h>

#include <gtest/gtest.h>

#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/launch/agent/free_port.hpp>

namespace unused_port_test {
namespace {

TEST(UnusedPort, IsAnotherOneEachTimeAndNoneThatIsInUse) {
  const std::uint16_t first = unused_port(), held = unused_port();
  EXPECT_NE(first, held);
  EXPECT_EQ(ddpxx::detail::free_port(held), held);
  const ddpxx::Descriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(held);
  ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  for (int i = 0; i < 250; ++i) EXPECT_NE(unused_port(), held);  // more often than there are ports to choose from
}

}  // namespace
}  // namespace unused_port_test
