// Waits for keys of a store in this process.
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/comm/host_address.hpp>
#include <ddpxx/comm/job_store_connection.hpp>
#include <ddpxx/comm/job_store_server.hpp>
#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/launch/agent/store_wait.hpp>

namespace ddpxx::store_wait_test {
namespace {

using namespace detail;
using std::chrono::milliseconds;

TEST(StoreWait, GoesOnWhenTheServerHasHeldItsRequestForAsLongAsItMay) {
  std::vector<Descriptor> listeners;
  listeners.push_back(listen_on_loopback());
  const auto port = SocketAddress::of_socket(listeners[0].get()).port();
  const JobStoreServer server{std::move(listeners), {}};
  const auto soon = [] { return JobStoreConnection::Clock::now() + std::chrono::seconds{10}; };
  auto connection = JobStoreConnection::open("127.0.0.1", port, {}, soon());

  StoreWait wait{connection, {"key"}, "unless", milliseconds{50}},
      interrupted{connection, {"never"}, "unless", milliseconds{50}};
  std::this_thread::sleep_for(milliseconds{300});
  EXPECT_FALSE(wait.is_over());
  connection.set("key", "", soon());
  EXPECT_FALSE(wait.interruption()) << "the wait must end";
  EXPECT_FALSE(interrupted.is_over());
  connection.set("unless", "why", soon());
  EXPECT_EQ(interrupted.interruption(), "why");
  const StoreWait endless{connection, {"never"}, {}, milliseconds{50}};  // its destructor must end the wait
}

}  // namespace
}  // namespace ddpxx::store_wait_test
