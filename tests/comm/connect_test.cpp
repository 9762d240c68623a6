#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <sched.h>
#include <string>
#include <thread>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/connect.hpp>
#include <ddpxx/testing.hpp>

namespace ddpxx {
namespace {

using std::chrono::milliseconds;

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::peer);
    return error.what();
  }
  return "no error";
}

Place place(int rank, int world_size, int restart = 0) {
  return {.rank = Rank{rank},
          .world_size = WorldSize{world_size},
          .local_rank = LocalRank{rank},
          .local_world_size = LocalWorldSize{world_size},
          .restart = restart};
}

TEST(Address, ReadsHostsAndBracketedIPv6) {
  EXPECT_EQ(parse_address("tcp://node0:29500").host, "node0");
  EXPECT_EQ(parse_address("tcp://[::1]:29603").host, "::1");
  EXPECT_EQ(parse_address("tcp://[::1]:29603").port, 29603);
}

TEST(Address, RefusesWhatIsNoneAndSaysTheForm) {
  for (const char* text : {"", "node0:1", "tcp://node0", "tcp://:1", "tcp://node0:", "tcp://node0:0",
                           "tcp://node0:65536", "tcp://node0:12x"})
    EXPECT_NE(error_of([&] { parse_address(text); }).find("tcp://HOST:PORT"), std::string::npos) << text;
}

TEST(Connect, AWorldOfOneOpensNoPort) {
  const auto group = connect("no address at all", place(0, 1));
  EXPECT_EQ(group.size(), 1);
}

// Before anything is allocated: a list of so many ranks would take all memory.
TEST(Connect, RefusesAWorldLargerThanTheStoreCanServe) {
  for (const int size : {kMaxRanks + 1, std::numeric_limits<int>::max()}) {
    const auto text = error_of([&] { connect("tcp://127.0.0.1:1", place(0, size)); });
    EXPECT_EQ(text, "world size is " + std::to_string(size) + "; it must be at most 131072");
  }
}

TEST(ConnectOptions, RefusesATimeOutOutsideItsRange) {
  for (const double seconds : {0.0, 1e-9, 1e18, 1e300, std::nan("")}) {
    try {
      const ConnectOptions options{{.collective_timeout = seconds}};
      ADD_FAILURE() << seconds << " s became " << options.collective_timeout.count() << " ms";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::config);
      EXPECT_NE(std::string{error.what()}.find("comm.collective_timeout is "), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(ConnectOptions{{.join_timeout = 1e7}}.join_timeout, milliseconds{10'000'000'000});
}

TEST(Connect, NamesTheRankThatNeverCame) {
  const auto [listener, port] = detail::listen_on_loopback();
  ConnectOptions options;
  options.join_timeout = milliseconds{1500};
  options.listening_socket = listener;
  const auto text =
      error_of([&, at = "tcp://127.0.0.1:" + std::to_string(port)] { connect(at, place(0, 3), options); });
  EXPECT_NE(text.find("rank 1, 2 never came to tcp://127.0.0.1:"), std::string::npos) << text;
  EXPECT_NE(text.find("within 1 s"), std::string::npos) << text;
}

// A launcher takes the first rank that ends for the cause, and rank 0 alone can tell who is missing once it has left.
TEST(Connect, LetsRankZeroEndFirstWhereItGaveUp) {
  detail::disable_flight_recorder();
  const auto [listener, port] = detail::listen_on_loopback();
  const auto at = "tcp://127.0.0.1:" + std::to_string(port);
  using Clock = std::chrono::steady_clock;
  std::string first, second;
  Clock::time_point second_ended;
  std::thread other{[&] {
    ConnectOptions options;
    options.join_timeout = std::chrono::seconds{60};
    second = error_of([&] { connect(at, place(1, 3), options); });
    second_ended = Clock::now();
  }};
  const auto start = Clock::now();
  ConnectOptions options;
  options.join_timeout = milliseconds{1000};
  options.listening_socket = listener;
  first = error_of([&] { connect(at, place(0, 3), options); });
  other.join();
  EXPECT_NE(first.find("never came to " + at), std::string::npos) << first;
  EXPECT_NE(second.find("rank 0, which serves the meeting, gave up or died"), std::string::npos) << second;
  // After a second rank 0 gives up and closes the store. A slow machine makes the time only longer.
  EXPECT_GT(second_ended - start, milliseconds{1900});
}

TEST(Connect, SaysThatThePortIsInUse) {
  const auto [listener, port] = detail::listen_on_loopback();
  const auto text = error_of([&, at = "tcp://127.0.0.1:" + std::to_string(port)] { connect(at, place(0, 2)); });
  EXPECT_NE(text.find("port in use: tcp://127.0.0.1:" + std::to_string(port)), std::string::npos) << text;
  ::close(listener);
}

TEST(Connect, SaysThatNobodyAnswers) {
  const auto [listener, port] = detail::listen_on_loopback();
  ::close(listener);
  ConnectOptions options;
  options.join_timeout = milliseconds{1000};
  const auto text =
      error_of([&, at = "tcp://127.0.0.1:" + std::to_string(port)] { connect(at, place(1, 2), options); });
  EXPECT_NE(text.find("rank 0 never came there"), std::string::npos) << text;
}

// A launcher's agent keeps its store over a restart: the second generation must not meet the keys of the first.
TEST(Connect, ARestartedGroupMeetsAnewInTheSameStore) {
  detail::disable_flight_recorder();
  const auto [listener, port] = detail::listen_on_loopback();
  c10d::TCPStoreOptions tcp;
  tcp.port = port;
  tcp.isServer = true;
  tcp.waitWorkers = false;
  tcp.masterListenFd = listener;
  const c10d::TCPStore agent{"127.0.0.1", tcp};
  ConnectOptions options;
  options.store_host = StoreHost::agent;
  options.join_timeout = milliseconds{5000};
  const auto at = "tcp://127.0.0.1:" + std::to_string(port);
  for (int restart = 0; restart < 3; ++restart) {
    std::thread other{[&] { connect(at, place(1, 2, restart), options).leave(); }};
    connect(at, place(0, 2, restart), options).leave();
    other.join();
  }
}

// With one core a rank, Gloo's thread would otherwise spin for a time slice while the holder of its lock waits.
TEST(Connect, GloosOwnThreadAloneIsPatient) {
  spawn_ranks(2, [](Group&) {
    int patient = 0;
    for (const auto& thread : std::filesystem::directory_iterator{"/proc/self/task"})
      patient += ::sched_getscheduler(std::stoi(thread.path().filename().string())) == SCHED_BATCH ? 1 : 0;
    EXPECT_EQ(patient, 1);
    EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
  });
}

TEST(Connect, RefusesARankThatIsTaken) {
  detail::disable_flight_recorder();
  const auto [listener, port] = detail::listen_on_loopback();
  ConnectOptions options;
  options.join_timeout = milliseconds{1500};
  options.listening_socket = listener;
  const auto at = "tcp://127.0.0.1:" + std::to_string(port);
  std::thread first{[&] { error_of([&] { connect(at, place(0, 3), options); }); }};
  ConnectOptions client;
  client.join_timeout = milliseconds{1500};
  std::thread second{[&] { error_of([&] { connect(at, place(1, 3), client); }); }};
  std::this_thread::sleep_for(milliseconds{500});
  const auto text = error_of([&] { connect(at, place(1, 3), client); });
  first.join();
  second.join();
  EXPECT_NE(text.find("two processes came to " + at + " as rank 1"), std::string::npos) << text;
}

}  // namespace
}  // namespace ddpxx
