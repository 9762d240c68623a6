#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/job_store_server.hpp>
#include <ddpxx/comm/listen.hpp>
#include <ddpxx/comm/rank_introduction.hpp>
#include <ddpxx/comm/roll_call.hpp>
#include <ddpxx/comm/waiting_line.hpp>

namespace ddpxx::roll_call_test {
namespace {

using std::chrono::milliseconds;

/// The log lines of rank `number` of four while it waits; ranks 0 and 2 have arrived, the others never do.
std::vector<std::string> lines_of(int number) {
  std::vector<Descriptor> listeners;
  listeners.push_back(listen_on_loopback());
  const auto port = SocketAddress::of_socket(listeners[0].get()).port();
  const JobStoreServer server{std::move(listeners), {}};
  const auto deadline = std::chrono::steady_clock::now() + milliseconds{1'500};
  auto store = JobStoreConnection::open("127.0.0.1", port, {}, deadline);
  store.set(number == 0 ? "rank2" : "rank0", "facts", deadline);
  std::vector<std::string> lines;
  try {
    call_roll(store, {.number = number,
                      .size = 4,
                      .facts = "mine",
                      .where = "HERE",
                      .limit = milliseconds{300'000},
                      .deadline = deadline,
                      .say = [&](const std::string& line) { lines.push_back(line); },
                      .line = WaitingLine{milliseconds{10}, milliseconds{1'000}}});
    ADD_FAILURE() << "the roll call succeeded";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 1, 3 never came to HERE within 300 s"));
  }
  return lines;
}

TEST(RollCall, TheLowestRankThatIsThereTellsWhoIsMissing) {
  const auto lines = lines_of(0);
  ASSERT_FALSE(lines.empty());
  EXPECT_LE(lines.size(), 2U) << "one line is due at 10 ms, one at 1010 ms";
  EXPECT_THAT(lines[0], testing::MatchesRegex("waiting for rank 1, 3 to come to HERE .[01] of 300 s."));
  EXPECT_TRUE(lines_of(2).empty());
}

TEST(RollCall, NamesARankThatIsLostRightAfterItHasClaimedItsNumber) {
  std::vector<Descriptor> listeners;
  listeners.push_back(listen_on_loopback());
  const auto port = SocketAddress::of_socket(listeners[0].get()).port();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{30};
  const auto come = [&](int number) {
    auto store = JobStoreConnection::open("127.0.0.1", port, {}, deadline);
    call_roll(store, {.number = number,
                      .size = 3,
                      .facts = std::to_string(number),
                      .where = "HERE",
                      .limit = milliseconds{30'000},
                      .deadline = deadline});
  };
  const pid_t rank = ::fork();  // before the server's threads
  ASSERT_GE(rank, 0);
  if (rank == 0) {
    ::setenv("DDPXX_FAILPOINT", "roll_call.after_claim:kill", 1);
    come(1);
    ::_exit(0);
  }
  const JobStoreServer server{std::move(listeners), {}};
  try {
    come(0);
    ADD_FAILURE() << "the roll call succeeded";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("rank 1 came to HERE and ended before all had come"));
  }
  int status = 0;
  ::waitpid(rank, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "status " << status;
}

RankIntroduction rank_on(const std::string& host, const std::string& ipv4, const std::string& ipv6, int route) {
  return {.world_size = 2, .host = host, .ipv4 = ipv4, .ipv6 = ipv6, .route = route, .mark = "x"};
}

TEST(RankIntroduction, AreReadBackAsTheyWereWritten) {
  const auto facts = rank_on("a host", "10.0.0.1", "", AF_INET6);
  const auto read = parse_introduction(to_text(facts));
  EXPECT_EQ(read.host, "a_host") << "blanks in a host name are replaced";
  EXPECT_EQ(read.ipv4, facts.ipv4);
  EXPECT_EQ(read.ipv6, "");
  EXPECT_EQ(read.route, AF_INET6);
}

RankIntroduction rank_with(const std::string& host, const std::string& device, const std::string& gpu) {
  auto facts = rank_on(host + "/boot/net", "10.0.0.1", "", AF_INET);
  facts.device = device;
  facts.backend = device == "cpu" ? "Gloo" : "NCCL";
  facts.gpu = gpu;
  return facts;
}

std::string refusal_of(Errc code, const std::vector<RankIntroduction>& ranks) {
  try {
    check_devices(ranks);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  return "";
}

TEST(RankIntroduction, KeepsTheDeviceAndTheGpu) {
  for (const std::string gpu : {"GPU-1", ""}) {
    const auto read = parse_introduction(to_text(rank_with("a", "cuda", gpu)));
    EXPECT_EQ(read.device, "cuda");
    EXPECT_EQ(read.gpu, gpu);
    EXPECT_EQ(read.mark, "x");
  }
}

TEST(RankIntroduction, RanksUseOneKindOfDevice) {
  EXPECT_EQ(refusal_of(Errc::peer, {rank_with("a", "cpu", ""), rank_with("b", "cpu", "")}), "");
  EXPECT_EQ(
      refusal_of(Errc::peer,
                 {rank_with("a", "cuda", "GPU-1"), rank_with("a", "cuda", "GPU-2"), rank_with("b", "cpu", "")}),
      "rank 0 on host a uses device cuda over NCCL, but rank 2 on host b uses device cpu over Gloo: give all ranks "
      "one kind of device and one comm.backend; device=auto takes the CPU where a host has no GPU that the program can "
      "use");
}

TEST(RankIntroduction, RanksUseOneBackend) {
  auto over_gloo = rank_with("b", "cuda", "");
  over_gloo.backend = "Gloo";
  EXPECT_EQ(parse_introduction(to_text(over_gloo)).backend, "Gloo");
  EXPECT_EQ(refusal_of(Errc::peer, {rank_with("a", "cuda", "GPU-1"), over_gloo}),
            "rank 0 on host a uses device cuda over NCCL, but rank 1 on host b uses device cuda over Gloo: give all "
            "ranks one kind of device and one comm.backend; device=auto takes the CPU where a host has no GPU that the "
            "program can use");
}

TEST(RankIntroduction, RanksUseAGpuEach) {
  EXPECT_EQ(refusal_of(Errc::config, {rank_with("a", "cuda", "GPU-1"), rank_with("a", "cuda", "GPU-2"),
                                      rank_with("b", "cuda", "GPU-3"), rank_with("a", "cuda", "GPU-2")}),
            "rank 1 on host a and rank 3 use one GPU, GPU-2: over NCCL each rank needs a GPU of its own; start at most "
            "one rank a GPU, or set comm.backend=gloo or device=cpu");
  EXPECT_EQ(refusal_of(Errc::config, {rank_with("a", "cuda", ""), rank_with("a", "cuda", "")}), "")
      << "their UUIDs are unknown";
}

TEST(RankIntroduction, OffersNoLoopbackAddressWhereOtherHostsMayCome) {
  const auto loopback = *SocketAddress::parse("127.0.0.1", 1);
  const auto facts = introduction_of_this_rank(2, false, loopback, std::vector{loopback});
  EXPECT_FALSE(is_loopback(facts.ipv4)) << facts.ipv4;
  EXPECT_EQ(facts.route, AF_UNSPEC);
  EXPECT_TRUE(on_one_host(std::vector{facts, introduction_of_this_rank(2, false, loopback, {})}));
  EXPECT_FALSE(on_one_host(std::vector{facts, rank_on("b", "10.0.0.2", "", AF_INET)}));
}

TEST(RankIntroduction, RanksOfOneMachineAreKeptApartByContainers) {
  const auto are_kept_apart = [](const std::vector<std::string>& memories) {
    std::vector<RankIntroduction> ranks(memories.size());
    for (std::size_t i = 0; i < memories.size(); ++i) ranks[i].memory = memories[i];
    return are_kept_apart_by_containers(ranks);
  };
  EXPECT_TRUE(are_kept_apart({"boot/pid:[1]", "boot/pid:[2]"}));
  EXPECT_TRUE(are_kept_apart({"other/pid:[1]", "boot/pid:[1]", "boot/pid:[2]"}));
  EXPECT_FALSE(are_kept_apart({"boot/pid:[1]", "boot/pid:[1]", "other/pid:[2]"})) << "two machines";
  EXPECT_FALSE(are_kept_apart({"boot/pid:[1]", "boot/pid:[2]", ""})) << "a rank uses another backend";
  EXPECT_FALSE(are_kept_apart({"/pid:[1]", "/pid:[2]"})) << "the ranks do not know their machines";
}

// Debian's /etc/hosts has "127.0.1.1 name" on the master, and the name resolves to IPv6 on other hosts.
TEST(RankIntroduction, TheRouteOfAnotherHostChoosesTheFamily) {
  const auto master = rank_on("a", "10.0.0.1", "fd00::1", AF_UNSPEC),
             other = rank_on("b", "10.0.0.2", "fd00::2", AF_INET6);
  EXPECT_EQ(common_family(std::vector{master, other}), AF_INET6);
  EXPECT_EQ(address_for_peers(std::vector{master, other}, 1), "fd00::2");
  const auto named = rank_on("a", "10.0.0.1", "fd00::1", AF_INET);
  EXPECT_EQ(common_family(std::vector{named, other}), AF_INET6)
      << "the master's own route counts less than another host's";
}

TEST(RankIntroduction, AFamilyThatARankLacksIsNotChosen) {
  const auto master = rank_on("a", "10.0.0.1", "", AF_INET), other = rank_on("b", "10.0.0.2", "fd00::2", AF_INET6);
  EXPECT_EQ(common_family(std::vector{master, other}), AF_INET);
  EXPECT_EQ(common_family(std::vector{master, rank_on("b", "", "fd00::2", AF_INET6)}), AF_UNSPEC);
}

}  // namespace
}  // namespace ddpxx::roll_call_test
