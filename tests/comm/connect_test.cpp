#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <future>
#include <latch>
#include <limits>
#include <memory>
#include <netdb.h>
#include <optional>
#include <sched.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/connect.hpp>
#include <ddpxx/comm/rendezvous.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/testing.hpp>

#include "../held_port.hpp"
#include "../loopback_listener.hpp"

namespace ddpxx::connect_test {
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

RankInfo rank_info(int rank, int world_size, int restart = 0) {
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

TEST(Address, RefusesOtherTextsAndNamesTheForm) {
  for (const char* text : {"", "node0:1", "tcp://node0", "tcp://:1", "tcp://[]:80", "tcp://node0:", "tcp://node0:0",
                           "tcp://node0:65536", "tcp://node0:12x"})
    EXPECT_NE(error_of([&] { parse_address(text); }).find("tcp://HOST:PORT"), std::string::npos) << text;
}

TEST(Connect, AWorldOfOneOpensNoPort) {
  const auto group = connect("no address at all", rank_info(0, 1));
  EXPECT_EQ(group.size(), 1);
}

// The size must be refused before connect() allocates one entry for each rank, which would take all memory.
TEST(Connect, RefusesAWorldLargerThanTheStoreCanServe) {
  for (const int size : {kMaxRanks + 1, std::numeric_limits<int>::max()}) {
    const auto text = error_of([&] { connect("tcp://127.0.0.1:1", rank_info(0, size)); });
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
  const auto [listener, port] = loopback_listener();
  ConnectOptions options;
  options.join_timeout = milliseconds{1500};
  options.listening_socket = listener;
  const auto text =
      error_of([&, at = "tcp://127.0.0.1:" + std::to_string(port)] { connect(at, rank_info(0, 3), options); });
  EXPECT_NE(text.find("rank 1, 2 never came to tcp://127.0.0.1:"), std::string::npos) << text;
  EXPECT_NE(text.find("within 1 s"), std::string::npos) << text;
}

TEST(Connect, ClosesTheListeningSocketItWasGivenAlsoWhereItFails) {
  for (const char* address : {"no address", "tcp://a name that does not resolve:1"}) {
    ConnectOptions options;
    options.join_timeout = milliseconds{100};
    options.listening_socket = loopback_listener().first;
    EXPECT_NE(error_of([&] { connect(address, rank_info(0, 2), options); }), "no error");
    EXPECT_EQ(::fcntl(options.listening_socket, F_GETFD), -1) << address;
  }
  ConnectOptions options;
  options.listening_socket = loopback_listener().first;
  EXPECT_NE(error_of([&] { connect("tcp://127.0.0.1:1", rank_info(0, kMaxRanks + 1), options); }), "no error");
  EXPECT_EQ(::fcntl(options.listening_socket, F_GETFD), -1);
}

TEST(Connect, WaitsForTheLongestTimesThatExist) {
  detail::disable_flight_recorder();
  for (const auto backend : {Backend::gloo, Backend::shared_memory}) {
    const auto [listener, port] = loopback_listener();
    const auto at = "tcp://127.0.0.1:" + std::to_string(port);
    const auto run_rank = [&](int rank, int socket) {
      ConnectOptions options;
      options.backend = backend;
      options.join_timeout = options.collective_timeout = milliseconds::max();
      options.listening_socket = socket;
      const auto text = error_of([&] {
        auto group = connect(at, rank_info(rank, 2), options);
        if (rank == 1) std::this_thread::sleep_for(milliseconds{100});
        all_reduce(at::ones({4}), group);
        group.leave();
      });
      EXPECT_EQ(text, "no error");
    };
    std::thread other{[&] { run_rank(1, -1); }};
    run_rank(0, listener);
    other.join();
  }
}

// A launcher reports the first rank that exits as the cause, and only rank 0 knows which ranks are missing. So the
// other ranks report a copy of rank 0's error, and later than rank 0.
TEST(Connect, LetsRankZeroTellWhyItGaveUp) {
  detail::disable_flight_recorder();
  const auto [listener, port] = loopback_listener();
  const auto at = "tcp://127.0.0.1:" + std::to_string(port);
  std::string first, second;
  std::optional<int> origin;
  std::thread other{[&] {
    ConnectOptions options;
    options.join_timeout = std::chrono::seconds{60};
    try {
      connect(at, rank_info(1, 3), options);
    } catch (const Error& error) {
      second = error.what();
      origin = error.origin();
    }
  }};
  ConnectOptions options;
  options.join_timeout = milliseconds{1000};
  options.listening_socket = listener;
  first = error_of([&] { connect(at, rank_info(0, 3), options); });
  other.join();
  EXPECT_NE(first.find("never came to " + at), std::string::npos) << first;
  EXPECT_NE(second.find("; its own message says more"), std::string::npos) << second;
  EXPECT_EQ(origin, 0);
}

/// The store that a launcher's agent serves, on a free port.
struct AgentStore {
  std::uint16_t port;
  JobStoreServer server;

  static AgentStore make(StoreCredentials credentials = {}) {
    const auto [listener, port] = loopback_listener();
    std::vector<Descriptor> listeners;
    listeners.emplace_back(listener);
    return {port, {std::move(listeners), std::move(credentials)}};
  }
  std::string address() const { return "tcp://127.0.0.1:" + std::to_string(port); }
  static ConnectOptions options(milliseconds join_timeout = milliseconds{20'000}) {
    ConnectOptions options;
    options.store_host = StoreHost::ddpxx_run;
    options.join_timeout = join_timeout;
    return options;
  }
};

TEST(Connect, NamesARankThatCameAndEndedBeforeTheOthersCame) {
  detail::disable_flight_recorder();
  const auto agent = AgentStore::make();
  std::string text;
  constexpr std::chrono::minutes kLong{2};
  std::thread first{
      [&] { text = error_of([&] { connect(agent.address(), rank_info(0, 3), AgentStore::options(kLong)); }); }};
  // Rank 1 gives up early, and rank 2 never connects.
  const auto start = std::chrono::steady_clock::now();
  error_of([&] { connect(agent.address(), rank_info(1, 3), AgentStore::options(milliseconds{1'500})); });
  first.join();
  EXPECT_NE(text.find("rank 1 came to " + agent.address() + " and ended before all had come"), std::string::npos)
      << text;
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLong) << "rank 0 waited for its own timeout";
}

// The port behaves as a frozen rank 0, a hung host, or any other program that accepts connections and never answers.
TEST(Connect, GivesUpAPortThatAcceptsAndIsSilentWithinTheJoinTimeout) {
  detail::disable_flight_recorder();
  const auto [listener, port] = loopback_listener();
  const auto at = "tcp://127.0.0.1:" + std::to_string(port);
  for (const auto host : {StoreHost::rank_zero, StoreHost::ddpxx_run, StoreHost::torchrun})
    for (const bool python_ranks : {false, true}) {
      ConnectOptions options;
      options.store_host = host;
      options.python_ranks = python_ranks;
      options.join_timeout = milliseconds{300};
      const auto text = error_of([&] { connect(at, rank_info(1, 2), options); });
      EXPECT_NE(text.find("no answer at " + at), std::string::npos) << text;
    }
  ::close(listener);
}

TEST(Connect, SaysThatANameDoesNotResolve) {
  for (const auto host : {StoreHost::rank_zero, StoreHost::torchrun}) {
    ConnectOptions options;
    options.store_host = host;
    options.join_timeout = milliseconds{300};
    const auto text = error_of([&] { connect("tcp://no-such-host.invalid:1234", rank_info(1, 2), options); });
    EXPECT_NE(text.find("the host name \"no-such-host.invalid\" does not resolve: "), std::string::npos) << text;
  }
}

/// The addresses of a name whose first look-up ends as `first`, and whose next one finds an address; or the error.
std::string resolved_after(const detail::Resolved& first) {
  const auto num_calls = std::make_shared<std::atomic<int>>(0);
  const auto look_up = [num_calls, first]() -> detail::Resolved {
    if (num_calls->fetch_add(1) == 0) return first;
    return {.addresses = {*SocketAddress::parse("10.0.0.7", 29'500)}};
  };
  std::string addresses;
  const auto error = error_of([&] {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes{1};
    for (const auto& address : detail::resolve_by(look_up, "job-0.job", deadline, {})) addresses += address.text();
  });
  return error == "no error" ? addresses : error;
}

// The name of a headless service of Kubernetes exists before its pods have addresses.
TEST(Resolve, LooksUpAgainANameThatHasNoAddressYet) {
  for (const int error : {EAI_AGAIN, EAI_NONAME, EAI_NODATA}) EXPECT_EQ(resolved_after({.error = error}), "10.0.0.7");
  for (const int error : {ETIMEDOUT, ECONNREFUSED, ENETUNREACH})
    EXPECT_EQ(resolved_after({.error = EAI_SYSTEM, .system_error = error}), "10.0.0.7");
}

TEST(Resolve, GivesUpEarlyWhereNoPodWillGetTheName) {
  using std::chrono::seconds;
  const auto of_this_pod = environment("KUBERNETES_SERVICE_HOST");
  ASSERT_EQ(::unsetenv("KUBERNETES_SERVICE_HOST"), 0);
  const auto now = std::chrono::steady_clock::now();
  EXPECT_LT(detail::end_of_look_ups(now + seconds{300}), now + seconds{100});
  EXPECT_EQ(detail::end_of_look_ups(now + seconds{5}), now + seconds{5});
  ASSERT_EQ(::setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1), 0);
  const auto in_a_pod = detail::end_of_look_ups(now + seconds{300});
  ASSERT_EQ(::unsetenv("KUBERNETES_SERVICE_HOST"), 0);
  if (of_this_pod) ASSERT_EQ(::setenv("KUBERNETES_SERVICE_HOST", of_this_pod->c_str(), 1), 0);
  EXPECT_EQ(in_a_pod, now + seconds{300});
}

TEST(Resolve, SaysTheErrorOfTheSystemThatWillStay) {
  EXPECT_EQ(resolved_after({.error = EAI_SYSTEM, .system_error = EACCES}),
            "the host name \"job-0.job\" does not resolve: System error: Permission denied; check the name, or give "
            "the IP address");
  EXPECT_NE(resolved_after({.error = EAI_FAIL}).find("does not resolve: "), std::string::npos);
}

TEST(Resolve, TellsTheReasonWhileTheNameServerIsSilent) {
  std::promise<void> end;
  const auto look_up = [ended = end.get_future().share()]() -> detail::Resolved {
    ended.wait_for(std::chrono::seconds{20});  // with another error, unless the test ends the look-up before
    return {};
  };
  const auto text = error_of([&] {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes{1};
    detail::resolve_by(look_up, "job-0.job", deadline, [](const std::string& reason) {
      throw Error{Errc::peer, reason};
    });
  });
  end.set_value();
  EXPECT_EQ(text, "its name does not resolve: the name server does not answer");
}

TEST(Connect, ASecondJobAtThePortFailsAndTheFirstGoesOn) {
  detail::disable_flight_recorder();
  const auto [listener, port] = loopback_listener();
  const auto at = "tcp://127.0.0.1:" + std::to_string(port);
  const auto options_of = [](const char* run_id) {
    ConnectOptions options;
    options.credentials.run_id = run_id;
    return options;
  };
  const auto joins = [&, listener = listener](int rank) {
    auto options = options_of("first");
    if (rank == 0) options.listening_socket = listener;
    connect(at, rank_info(rank, 3), options).leave();
  };
  std::thread rank_0{joins, 0}, rank_1{joins, 1};
  {
    auto probe = JobStoreConnection::open("127.0.0.1", port, {.credentials = {.run_id = "first"}},
                                          std::chrono::steady_clock::now() + std::chrono::seconds{20});
    EXPECT_TRUE(probe.get("ddpxx/rank1", std::chrono::steady_clock::now() + std::chrono::seconds{20}));
  }
  EXPECT_NE(error_of([&] { connect(at, rank_info(0, 3), options_of("second")); }).find("port in use"),
            std::string::npos);
  EXPECT_NE(error_of([&] { connect(at, rank_info(1, 3), options_of("second")); }).find("belongs to another run"),
            std::string::npos);
  // A second job without an id, or with an equal one, is recognized only by the rank that two of its processes share.
  EXPECT_NE(error_of([&] { connect(at, rank_info(1, 3), options_of("first")); }).find("two processes came to "),
            std::string::npos);
  EXPECT_NE(error_of([&] { connect(at, rank_info(1, 3), options_of("first")); }).find("made by Group::split()"),
            std::string::npos);
  joins(2);
  rank_0.join();
  rank_1.join();
}

// Rank 0 serves the store, and the reader of its log is paused.
TEST(Connect, DoesNotWaitForTheReaderOfAWarningOfAStranger) {
  const auto [listener, port] = loopback_listener();
  const auto at = "tcp://127.0.0.1:" + std::to_string(port);
  std::promise<std::string> warning;
  std::promise<void> goes_on;
  set_log_sink([&, paused = goes_on.get_future().share()](const LogLine& line) {
    warning.set_value(std::string{line.text});
    paused.wait();
  });
  const auto options_of = [](const char* run_id) {
    ConnectOptions options;
    options.credentials.run_id = run_id;
    options.join_timeout = std::chrono::seconds{10};
    return options;
  };
  std::thread rank_0{[&, listener = listener] {
    auto options = options_of("first");
    options.listening_socket = listener;
    EXPECT_EQ(error_of([&] { connect(at, rank_info(0, 2), options).leave(); }), "no error");
  }};
  EXPECT_NE(error_of([&] { connect(at, rank_info(1, 2), options_of("second")); }).find("belongs to another run"),
            std::string::npos);
  EXPECT_NE(warning.get_future().get().find("since it belongs to another run"), std::string::npos);
  std::optional<Group> group;
  EXPECT_EQ(error_of([&] { group.emplace(connect(at, rank_info(1, 2), options_of("first"))); }), "no error");
  goes_on.set_value();  // the store ends after its warning
  if (group) group->leave();
  rank_0.join();
  set_log_sink({});
}

TEST(Connect, WritesOutControlCharactersInTheTextsOfPeers) {
  const auto agent = AgentStore::make();
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{20};
  auto peer = JobStoreConnection::open("127.0.0.1", agent.port, {}, until);
  peer.set("ddpxx/restart0/rank1", "\x1b[31m", until);
  const auto text = error_of([&] { connect(agent.address(), rank_info(0, 2), AgentStore::options()); });
  EXPECT_NE(text.find("cannot read what a rank sent about itself, \"\\x1b[31m\":"), std::string::npos) << text;
}

TEST(Connect, SaysThatThePortIsInUse) {
  const auto [listener, port] = loopback_listener();
  const auto text = error_of([&, at = "tcp://127.0.0.1:" + std::to_string(port)] { connect(at, rank_info(0, 2)); });
  EXPECT_NE(text.find("port in use: tcp://127.0.0.1:" + std::to_string(port)), std::string::npos) << text;
  ::close(listener);
}

TEST(Connect, SaysThatNoServerAnswers) {
  const HeldPort port;
  ConnectOptions options;
  options.join_timeout = milliseconds{1000};
  const auto at = "tcp://127.0.0.1:" + std::to_string(port.number());
  const auto text = error_of([&] { connect(at, rank_info(1, 2), options); });
  EXPECT_NE(text.find("rank 0 never came there"), std::string::npos) << text;
}

/// The errors with which two ranks end their meeting; the ranks use `first` and `second` as their GPUs' UUIDs, and the
/// CPU where there is none.
std::vector<std::string> refusals(Errc code, StoreHost host, const std::string& first, const std::string& second) {
  detail::disable_flight_recorder();
  const auto [listener, port] = loopback_listener();
  std::vector<Descriptor> listeners;
  std::optional<JobStoreServer> agent;
  if (host == StoreHost::ddpxx_run) {
    listeners.emplace_back(listener);
    agent.emplace(std::move(listeners), StoreCredentials{});
  }
  std::latch ended{2};  // a rank that leaves early would look as if it had died before the other one came
  const auto meets = [&, listener = listener, port = port](int rank, const std::string& gpu_uuid) -> std::string {
    ConnectOptions options;
    options.store_host = host;
    options.join_timeout = milliseconds{20'000};
    if (rank == 0 && !agent) options.listening_socket = listener;
    if (!gpu_uuid.empty()) options.device = at::Device{at::kCUDA, 0};
    options.gpu_uuid = gpu_uuid;
    try {
      const auto meeting = meet("127.0.0.1", port, rank_info(rank, 2), options);
      ended.arrive_and_wait();
    } catch (const Error& error) {
      ended.count_down();
      EXPECT_EQ(error.code(), code);
      return error.what();
    }
    return "they met";
  };
  auto other = std::async(std::launch::async, meets, 1, second);
  auto mine = meets(0, first);
  return {std::move(mine), other.get()};
}

TEST(Connect, EachRankOfTwoKindsOfDevicesSaysWhich) {
  for (const auto host : {StoreHost::rank_zero, StoreHost::ddpxx_run})
    for (int attempt = 0; attempt < 20; ++attempt)
      for (const auto& text : refusals(Errc::peer, host, "", "GPU-1")) {
        EXPECT_NE(text.find("uses device cpu over Gloo, but rank 1 on host "), std::string::npos) << text;
        EXPECT_NE(text.find("uses device cuda over NCCL"), std::string::npos) << text;
      }
}

TEST(Connect, EachRankOfTwoOnOneGpuNamesTheGpu) {
  for (const auto& text : refusals(Errc::config, StoreHost::rank_zero, "GPU-1", "GPU-1"))
    EXPECT_NE(text.find(" and rank 1 use one GPU, GPU-1: "), std::string::npos) << text;
  EXPECT_EQ(refusals(Errc::config, StoreHost::rank_zero, "GPU-1", "GPU-2"),
            (std::vector<std::string>{"they met", "they met"}));
}

TEST(Connect, NamesARankThatWasStartedWithAnotherWorldSize) {
  detail::disable_flight_recorder();
  const auto agent = AgentStore::make();
  std::string second;
  std::thread other{
      [&] { second = error_of([&] { meet("127.0.0.1", agent.port, rank_info(1, 3), AgentStore::options()); }); }};
  const auto first = error_of([&] { meet("127.0.0.1", agent.port, rank_info(0, 2), AgentStore::options()); });
  other.join();
  EXPECT_EQ(first,
            "rank 1 was started with a world size of 3, but rank 0 with 2: give all ranks the same WORLD_SIZE; "
            "rank=0");
  EXPECT_NE(second.find("rank 0 came to " + agent.address() + " and ended before all had come"), std::string::npos)
      << second;
}

// srun and mpirun do not tell a rank how many ranks run on its host.
TEST(Connect, RanksThatAreNotToldHowManyTheyAreOnAHostMeetOnOne) {
  detail::disable_flight_recorder();
  const auto [listener, port] = loopback_listener();
  const auto at = "tcp://127.0.0.1:" + std::to_string(port);
  ConnectOptions options;
  options.local_world_known = false;
  std::thread other{[&] { connect(at, rank_info(1, 2), options).leave(); }};
  auto first = options;
  first.listening_socket = listener;
  connect(at, rank_info(0, 2), first).leave();
  other.join();
}

// A shell runs two programs in a row as one rank: the rank numbers that the first program claimed are free again once
// its connections are closed.
TEST(Connect, ASecondProgramOfTheSameRanksMeetsAgain) {
  detail::disable_flight_recorder();
  const auto agent = AgentStore::make();
  for (int program = 0; program < 3; ++program) {
    std::thread other{[&] { connect(agent.address(), rank_info(1, 2), AgentStore::options()).leave(); }};
    connect(agent.address(), rank_info(0, 2), AgentStore::options()).leave();
    other.join();
  }
}

// A launcher's agent keeps its store over a restart: the ranks must not read the keys of an earlier start. With
// `counted_once`, as under torchrun, the restarts of rank 1 are not counted.
void expect_to_meet_anew(const std::string& at, const ConnectOptions& options, bool counted_once = false) {
  for (int restart = 0; restart < 3; ++restart) {
    std::thread other{[&] { connect(at, rank_info(1, 2, counted_once ? 0 : restart), options).leave(); }};
    connect(at, rank_info(0, 2, restart), options).leave();
    other.join();
  }
}

TEST(Connect, ARestartedGroupMeetsAgainInTheStoreOfTheAgent) {
  detail::disable_flight_recorder();
  const auto agent = AgentStore::make();
  expect_to_meet_anew(agent.address(), AgentStore::options());
}

/// A store as torchrun's agent serves it, which serves as long as the object lives.
c10::intrusive_ptr<c10d::TCPStore> store_of_torchrun() {
  const auto [listener, port] = loopback_listener();
  c10d::TCPStoreOptions tcp;
  tcp.port = port;
  tcp.isServer = true;
  tcp.waitWorkers = false;
  tcp.masterListenFd = listener;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", tcp);
}

TEST(Connect, ARestartedGroupMeetsAgainInTheStoreOfTorchrun) {
  detail::disable_flight_recorder();
  const auto agent = store_of_torchrun();
  ConnectOptions options;
  options.store_host = StoreHost::torchrun;
  options.join_timeout = milliseconds{60'000};
  const auto at = "tcp://127.0.0.1:" + std::to_string(agent->getPort());
  expect_to_meet_anew(at, options);
  expect_to_meet_anew(at, options, /*counted_once=*/true);
  const auto text = error_of([&] {
    options.join_timeout = milliseconds{2000};
    connect(at, rank_info(0, 3, 9), options);
  });
  EXPECT_NE(text.find("rank 1, 2 never came to " + at), std::string::npos) << text;
}

TEST(Connect, SaysThatTheStoreOfTorchrunHasEnded) {
  detail::disable_flight_recorder();
  auto agent = store_of_torchrun();
  const auto at = "tcp://127.0.0.1:" + std::to_string(agent->getPort());
  const auto keys = agent->getNumKeys();
  std::string text;
  std::thread rank{[&] {
    ConnectOptions options;
    options.store_host = StoreHost::torchrun;
    text = error_of([&] { connect(at, rank_info(0, 2), options); });
  }};
  while (agent->getNumKeys() == keys) std::this_thread::sleep_for(milliseconds{1});
  agent.reset();
  rank.join();
  EXPECT_EQ(text.find("the ranks did not all come to " + at +
                      ": the launcher, which serves the store, has ended or does not answer; see its output on the "
                      "host of MASTER_ADDR"),
            0U)
      << text;
}

// With one core for each rank, Gloo's thread would otherwise spin for a time slice while the holder of its lock waits
// for the core.
TEST(Connect, OnlyGloosThreadHasTheBatchPolicy) {
  spawn_ranks(2, [](Group&) {
    int patient = 0;
    for (const auto& thread : std::filesystem::directory_iterator{"/proc/self/task"})
      patient += ::sched_getscheduler(std::stoi(thread.path().filename().string())) == SCHED_BATCH ? 1 : 0;
    EXPECT_EQ(patient, 1);
    EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER);
  });
}

}  // namespace
}  // namespace ddpxx::connect_test
