// s3_large_test.cpp — lists as long as a training makes them, and a server that is stopped for a while.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/storage/s3_storage.hpp>

#include "s3_servers.hpp"

namespace ddpxx::s3_large_test {
namespace {

class S3Large : public testing::TestWithParam<std::string> {
 protected:
  S3Large() {
    config_.part_bytes = S3Config{}.part_bytes;
    config_.retries = S3Config{}.retries;
    config_.first_pause = S3Config{}.first_pause;
    config_.stall_timeout = std::chrono::seconds{10};
  }
  void TearDown() override { remove_all(storage_); }

  nlohmann::json server_ = s3_server(GetParam());
  S3Config config_ = s3_config(server_);
  S3Storage storage_{s3_place(server_, "large"), config_};
};

INSTANTIATE_TEST_SUITE_P(, S3Large, testing::Values("ceph", "seaweedfs"),
                         [](const auto& server) { return server.param; });

TEST_P(S3Large, ListsTwoThousandObjects) {
  constexpr int kObjects = 2000;
  const auto name_of = [](int i) { return "step-" + std::to_string(i) + "/manifest & more.json"; };
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 8; ++thread)
      threads.emplace_back([&, thread] {
        for (int i = thread; i < kObjects; i += 8) storage_.write(name_of(i), std::array{bytes_of(name_of(i))});
      });
  }
  std::vector<StoredObject> expected;
  for (int i = 0; i < kObjects; ++i) expected.push_back({name_of(i), name_of(i).size()});
  std::sort(expected.begin(), expected.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  EXPECT_EQ(storage_.list(""), expected);
  EXPECT_EQ(storage_.list("step-1").size(), 1111U);
}

TEST_P(S3Large, WaitsForAServerThatHangs) {
  const auto& pids = server_.at("pids");
  const auto server = pids.at(pids.contains("radosgw") ? "radosgw" : "weed").get<pid_t>();
  const auto content = pattern(100'000'000);
  std::jthread hang{[server] {
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    ::kill(server, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::seconds{5});
    ::kill(server, SIGCONT);
  }};
  storage_.write("object", std::array<Bytes, 1>{content});
  hang.join();
  std::vector<std::byte> back(content.size());
  storage_.read("object", 0, back);
  EXPECT_TRUE(same_bytes(back, content));
}

}  // namespace
}  // namespace ddpxx::s3_large_test
