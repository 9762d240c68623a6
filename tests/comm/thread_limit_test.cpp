// On a system that refuses new threads, a rank reports the limit instead of ending without a message.
#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/gloo.hpp>
#include <ddpxx/comm/job_store_server.hpp>
#include <ddpxx/comm/listen.hpp>
#include <ddpxx/comm/within.hpp>
#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>

#include "../error_of.hpp"
#include "../without_threads.hpp"

namespace ddpxx::thread_limit_test {
namespace {

using testing::HasSubstr;

void expect_limit(const char* what_for, const std::function<void()>& connects) {
  without_threads([&] {
    EXPECT_EQ(code_of(connects), Errc::peer);
    const auto text = error_of(connects);
    EXPECT_THAT(text, HasSubstr(what_for));
    EXPECT_THAT(text, HasSubstr("Resource temporarily unavailable (limit: ulimit -u"));
  });
}

TEST(ThreadLimit, IsNamedByARankThatCannotConnectOverGloo) {
  const Meeting meeting{.store = c10::make_intrusive<c10d::HashStore>(),
                        .host = "127.0.0.1",
                        .join_timeout = std::chrono::seconds{5},
                        .collective_timeout = std::chrono::seconds{5}};
  expect_limit("a group over Gloo", [&] { connect_gloo(meeting); });
}

TEST(ThreadLimit, IsNamedByAWaitForAStore) {
  expect_limit("cannot start a thread to wait for the store: ",
               [] { within(std::chrono::steady_clock::now() + std::chrono::seconds{5}, [] { return 1; }); });
}

TEST(ThreadLimit, IsNamedByTheServerOfTheJobsStore) {
  without_threads([] {
    const auto serve = [] {
      std::vector<Descriptor> listeners;
      listeners.push_back(listen_on_loopback());
      const JobStoreServer server{std::move(listeners), {}};
    };
    EXPECT_EQ(code_of(serve), Errc::peer);
    EXPECT_EQ(error_of(serve),
              "cannot serve the job's store: no thread (limit: ulimit -u); cause=Resource temporarily unavailable");
  });
}

}  // namespace
}  // namespace ddpxx::thread_limit_test
