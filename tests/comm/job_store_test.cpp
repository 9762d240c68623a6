// What c10d's backends expect of a store, tested with the job's store and with c10d's own.
#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <poll.h>
#include <span>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/job_store.hpp>
#include <ddpxx/comm/limited_store.hpp>
#include <ddpxx/comm/listen.hpp>

#include "../held_port.hpp"

namespace ddpxx::job_store_test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

std::vector<std::uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

JobStoreConnection::Time in(milliseconds time) { return JobStoreConnection::Clock::now() + time; }

/// A server on a free port of the loopback interface.
struct Served {
  explicit Served(StoreCredentials of = {}, StoreLimits limits = {}) : credentials{std::move(of)} {
    std::vector<Descriptor> listeners;
    listeners.push_back(listen_on_loopback());
    port = SocketAddress::of_socket(listeners[0].get()).port();
    server = std::make_shared<JobStoreServer>(std::move(listeners), credentials, limits);
  }
  JobStoreConnection connect() const { return connect(credentials); }
  JobStoreConnection connect(StoreCredentials with) const {
    return JobStoreConnection::open("127.0.0.1", port, {.credentials = std::move(with)}, in(milliseconds{10'000}));
  }

  StoreCredentials credentials;
  std::uint16_t port = 0;
  std::shared_ptr<JobStoreServer> server;
};

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

c10::intrusive_ptr<c10d::Store> job_store() {
  const Served served{{.token = "secret", .run_id = "run"}};
  return c10::make_intrusive<JobStore>(served.connect(), milliseconds{10'000}, served.server);
}

c10::intrusive_ptr<c10d::Store> tcp_store() {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = milliseconds{10'000};
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

c10::intrusive_ptr<c10d::Store> limited_store() {
  return c10::make_intrusive<LimitedStore>(tcp_store(), milliseconds{10'000});
}

struct Kind {
  const char* name;
  c10::intrusive_ptr<c10d::Store> (*make)();
};

class StoreContract : public testing::TestWithParam<Kind> {
 protected:
  c10::intrusive_ptr<c10d::Store> store_ = GetParam().make();
};

INSTANTIATE_TEST_SUITE_P(Stores, StoreContract,
                         testing::Values(Kind{"JobStore", job_store}, Kind{"TCPStore", tcp_store},
                                         Kind{"LimitedStore", limited_store}),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(StoreContract, KeepsBytesOfEveryKind) {
  const std::string all{"\0\x01\xFF\n", 4};
  store_->set("key", all);
  EXPECT_EQ(store_->get("key"), bytes(all));
  store_->set("key", "");
  EXPECT_EQ(store_->get_to_str("key"), "");
  const std::string large(3'000'000, 'x');
  store_->set("key", large);
  EXPECT_EQ(store_->get_to_str("key"), large);
}

TEST_P(StoreContract, AddsToNumbersThatGetReads) {
  EXPECT_EQ(store_->add("n", 5), 5);
  EXPECT_EQ(store_->add("n", -7), -2);
  EXPECT_EQ(store_->get_to_str("n"), "-2");
  store_->set("n", "40");
  EXPECT_EQ(store_->add("n", 2), 42);
}

TEST_P(StoreContract, SetsOnlyWhatIsAsExpected) {
  EXPECT_EQ(store_->compareSet("key", "", "first"), "first");
  EXPECT_EQ(store_->compareSet("key", "", "second"), "first");
  EXPECT_EQ(store_->compareSet("key", "first", "third"), "third");
  EXPECT_EQ(store_->compareSet("other", "expected", "new"), "expected");
  EXPECT_FALSE(store_->check({"other"}));
}

TEST_P(StoreContract, ChecksCountsAndDeletesKeys) {
  const auto before = store_->getNumKeys();
  store_->set("a", "1");
  store_->set("b", "2");
  EXPECT_TRUE(store_->check({"a", "b"}));
  EXPECT_FALSE(store_->check({"a", "c"}));
  EXPECT_EQ(store_->getNumKeys(), before + 2);
  EXPECT_TRUE(store_->deleteKey("a"));
  EXPECT_FALSE(store_->deleteKey("a"));
  EXPECT_EQ(store_->getNumKeys(), before + 1);
}

TEST_P(StoreContract, HasTheExtendedOperationsOfGloo) {
  ASSERT_TRUE(store_->hasExtendedApi());
  store_->append("a", bytes("one"));
  store_->append("a", bytes(" two"));
  store_->multiSet({"b", "c"}, {bytes("3"), bytes("4")});
  EXPECT_EQ(store_->multiGet({"a", "c", "b"}), (std::vector{bytes("one two"), bytes("4"), bytes("3")}));
}

TEST_P(StoreContract, GetAndWaitReturnWhenAnotherClientSetsTheKeys) {
  const auto other = store_->clone();
  auto got = std::async(std::launch::async, [&] { return store_->get_to_str("late"); });
  other->set("late", "value");
  EXPECT_EQ(got.get(), "value");
  auto waited = std::async(std::launch::async, [&] { store_->wait({"late", "x", "y"}); });
  other->set("y", "1");
  other->set("x", "1");
  waited.get();
}

TEST_P(StoreContract, AWaitThatTimesOutIsAnErrorAndTheStoreStaysUsable) {
  EXPECT_THROW(store_->wait({"never"}, milliseconds{50}), c10::DistStoreError);
  store_->setTimeout(milliseconds{50});
  EXPECT_ANY_THROW(store_->get("never"));
  store_->setTimeout(milliseconds{10'000});
  store_->set("key", "value");
  EXPECT_EQ(store_->get_to_str("key"), "value");
}

TEST_P(StoreContract, ServesUnderPrefixesAndFromTwoThreads) {
  const auto left = c10::make_intrusive<c10d::PrefixStore>("left", store_);
  const auto right = c10::make_intrusive<c10d::PrefixStore>("right", store_);
  const auto count = [](c10d::Store& store) {
    for (int i = 0; i < 200; ++i) store.add("n", 1);
  };
  std::thread thread{[&] { count(*left); }};
  count(*left);
  count(*right);
  thread.join();
  EXPECT_EQ(left->add("n", 0), 400);
  EXPECT_EQ(right->add("n", 0), 200);
  EXPECT_TRUE(store_->check({"left/n", "right/n"}));
}

TEST(JobStore, AdmitsOnlyItsTokenAndItsRun) {
  const Served served{{.token = "secret", .run_id = "a"}};
  EXPECT_THAT(error_of([&] { served.connect({.token = "secret2", .run_id = "a"}); }),
              HasSubstr("DDPXX_TOKEN differs from the store's"));
  EXPECT_THAT(error_of([&] { served.connect({.token = "", .run_id = "a"}); }), HasSubstr("DDPXX_TOKEN"));
  const auto other = error_of([&] { served.connect({.token = "secret", .run_id = "\x1b[31mb"}); });
  EXPECT_THAT(other, HasSubstr("belongs to another run: this one's id is \"\\x1b[31mb\""));
  EXPECT_EQ(served.connect().count_keys(in(milliseconds{10'000})), 0);
  EXPECT_THAT(error_of([&] { served.connect({.token = std::string(257, 'x')}); }), HasSubstr("longer than 256 bytes"));
}

TEST(JobStore, EndsAWaitEarlyAtTheKeyThatInterruptsIt) {
  const Served served;
  auto waiting = served.connect(), other = served.connect();
  auto result = std::async(std::launch::async, [&] {
    return waiting.wait(std::vector<std::string>{"a", "b"}, "gone", in(milliseconds{60'000}));
  });
  other.set("a", "1", in(milliseconds{10'000}));
  other.set("gone", "rank 3", in(milliseconds{10'000}));
  EXPECT_EQ(result.get().interruption, "rank 3");
}

TEST(JobStore, NamesTheKeysThatDidNotCome) {
  const Served served;
  auto store = served.connect();
  store.set("b", "1", in(milliseconds{10'000}));
  const auto result = store.wait(std::vector<std::string>{"a", "b", "c"}, "", in(milliseconds{20}));
  EXPECT_EQ(result.missing, (std::vector<std::size_t>{0, 2}));
}

TEST(JobStore, SetsTheWillOfAClientThatIsGone) {
  const Served served;
  auto store = served.connect();
  std::optional<JobStoreConnection> dying{served.connect()};
  const std::vector<std::string> will{"gone", "left3"};
  EXPECT_EQ(dying->claim("place", "facts", will, "rank 3", in(milliseconds{10'000})), "facts");
  EXPECT_EQ(store.get("place", in(milliseconds{10'000})), "facts");
  EXPECT_FALSE(store.check(std::vector<std::string>{"gone"}, in(milliseconds{10'000})));
  dying.reset();
  EXPECT_EQ(store.get("gone", in(milliseconds{10'000})), "rank 3");
  EXPECT_EQ(store.get("left3", in(milliseconds{10'000})), "rank 3");
}

TEST(JobStore, TakesNoWillOfAClientWhoseClaimComesTooLate) {
  const Served served;
  const auto until = in(milliseconds{10'000});
  auto store = served.connect();
  EXPECT_EQ(store.claim("place", "first", std::vector<std::string>{"left first"}, "", until), "first");
  std::optional<JobStoreConnection> late{served.connect()};
  EXPECT_EQ(late->claim("mark", "late", std::vector<std::string>{"left late"}, "earlier will", until), "late");
  EXPECT_EQ(late->claim("place", "late", std::vector<std::string>{"left first"}, "", until), "first");
  EXPECT_EQ(store.get("place", until), "first");
  late.reset();
  EXPECT_EQ(store.get("left late", until), "earlier will") << "a claim that fails changes nothing";
  EXPECT_FALSE(store.check(std::vector<std::string>{"left first"}, until));
}

TEST(JobStore, ForgetsTheWaitOfAClientThatIsGone) {
  const Served served;
  const auto until = in(milliseconds{10'000});
  auto store = served.connect();
  const std::vector<std::string> key{"key"};
  {
    auto leaving = served.connect();  // closes its connection before the server answers
    EXPECT_THROW(leaving.wait(key, "", until, in(milliseconds{50})), Error);
  }
  EXPECT_FALSE(store.check(key, until));  // the answer comes after the server has seen the end of the other connection
  store.set("key", "value", until);
  EXPECT_EQ(store.get("key", until), "value");
}

TEST(JobStore, WaitsForTheKeysOfALargeWorldInParts) {
  const Served served{{}, {.total_bytes = 400'000}};
  auto store = served.connect();
  const auto until = in(milliseconds{60'000});
  std::vector<std::string> keys;
  for (int rank = 0; rank < 40'000; ++rank) keys.push_back("rank" + std::to_string(rank));
  const auto set = [&](std::size_t i) { store.set(keys[i], std::to_string(i), until); };
  for (const std::size_t i : {0U, 1U, 70U, 39'999U}) set(i);
  const auto missing = store.wait(keys, "gone", in(milliseconds{100}), until).missing;
  ASSERT_EQ(missing.size(), 39'996U) << "one request with all keys is refused: the store is full";
  EXPECT_EQ(missing.front(), 2U);
  EXPECT_EQ(missing.back(), 39'998U);
  store.set("gone", "7", until);
  EXPECT_EQ(store.wait(keys, "gone", until, until).interruption, "7");
  for (std::size_t i = 0; i < 2'000; ++i) set(i);
  const auto values = store.multi_get(std::span{keys}.first(2'000), until);
  ASSERT_EQ(values.size(), 2'000U);
  EXPECT_EQ(values.back(), "1999");
}

TEST(JobStore, RefusesAnswersThatItDoesNotUnderstand) {
  using Call = std::function<void(JobStoreConnection&, JobStoreConnection::Time)>;
  const std::vector<std::string> keys{"a", "b"};
  const std::vector<Call> calls{[](auto& store, auto until) { store.get("key", until); },
                                [](auto& store, auto until) { store.add("key", 1, until); },
                                [&](auto& store, auto until) { store.multi_get(keys, until); },
                                [](auto& store, auto until) { store.compare_set("key", "", "x", until); }};
  for (const auto& call : calls) {
    const auto listener = listen_on_loopback();
    std::thread server{[&] {
      pollfd waits{listener.get(), POLLIN, 0};
      ::poll(&waits, 1, 10'000);
      const Descriptor client{::accept(listener.get(), nullptr, nullptr)};
      std::array<char, 4096> bytes{};
      EXPECT_GT(::read(client.get(), bytes.data(), bytes.size()), 0);
      EXPECT_EQ(::write(client.get(), "a", 1), 1);
      EXPECT_GT(::read(client.get(), bytes.data(), bytes.size()), 0);
      EXPECT_EQ(::write(client.get(), "\1\0\0\0\1", 5), 5);  // the status `done`, and no fields
    }};
    const auto until = in(milliseconds{10'000});
    auto store = JobStoreConnection::open("127.0.0.1", SocketAddress::of_socket(listener.get()).port(), {}, until);
    EXPECT_THAT(error_of([&] { call(store, until); }), HasSubstr("an answer that this version does not understand"));
    server.join();
  }
}

TEST(JobStore, SaysWhyAServerThatAnswersTakesNoClient) {
  for (const auto& [answer, says] :
       {std::pair{'v', " is served by another version of ddpxx: all processes of a run need one version"},
        std::pair{'f', " serves as many connections as it can (limit there: ulimit -n)"},
        std::pair{'H', ": choose another port"}}) {
    const auto listener = listen_on_loopback();
    std::thread server{[&, sent = answer] {
      pollfd waits{listener.get(), POLLIN, 0};
      ::poll(&waits, 1, 10'000);
      const Descriptor client{::accept(listener.get(), nullptr, nullptr)};
      std::array<char, 4096> bytes{};
      EXPECT_GT(::read(client.get(), bytes.data(), bytes.size()), 0);
      EXPECT_EQ(::write(client.get(), &sent, 1), 1);
    }};
    const auto port = SocketAddress::of_socket(listener.get()).port();
    const auto text =
        error_of([port = port] { JobStoreConnection::open("127.0.0.1", port, {}, in(milliseconds{10'000})); });
    server.join();
    EXPECT_EQ(text,
              (answer == 'H' ? "another program listens at " : "the store at ") + store_url("127.0.0.1", port) + says);
  }
}

TEST(JobStore, CountsWhatItKeepsForClientsInItsLimit) {
  constexpr std::size_t kTotal = 200'000;
  const Served served{{}, {.wait_keys = 100, .total_bytes = kTotal}};
  const auto until = in(milliseconds{10'000});
  auto store = served.connect(), other = served.connect();
  EXPECT_THAT(error_of([&] { store.wait(std::vector<std::string>(101, "k"), "", until); }),
              HasSubstr("too many keys to wait for"));
  const Served small{{}, {.total_bytes = 40'000}};
  auto store_of_small = small.connect();
  EXPECT_THAT(error_of([&] { store_of_small.wait(std::vector<std::string>(1'000, "k"), "", until); }),
              HasSubstr("the store is full"));
  const std::vector<std::string> gone{"gone"};
  EXPECT_THAT(error_of([&] { store.claim("place", "", gone, std::string(std::size_t{17} << 20U, 'x'), until); }),
              testing::AnyOf(HasSubstr("the value is too large"), HasSubstr("has closed the connection")));
  store = served.connect();
  store.claim("place", "", gone, std::string(kTotal / 2, 'x'), until);
  EXPECT_THAT(error_of([&] { other.set("key", std::string(kTotal * 3 / 4, 'x'), until); }),
              testing::AnyOf(HasSubstr("the store is full"), HasSubstr("has closed the connection")));
  // A connection with an unfinished request.
  other = served.connect();
  store = served.connect();
  other.set("key", std::string(1'000, 'x'), until);
  EXPECT_EQ(store.get("key", until), std::string(1'000, 'x'));
}

TEST(JobStore, RefusesLargeRequestsAndKeepsServingTheClient) {
  const Served served{{}, {.key_bytes = 8, .value_bytes = 20, .message_bytes = 300, .total_bytes = 1'000}};
  auto store = served.connect();
  const auto until = in(milliseconds{10'000});
  EXPECT_THAT(error_of([&] { store.set("key", std::string(21, 'x'), until); }), HasSubstr("the value is too large"));
  EXPECT_THAT(error_of([&] { store.set("long name", "", until); }), HasSubstr("the key is empty or too long"));
  store.set("word", "one", until);
  EXPECT_THAT(error_of([&] { store.add("word", 1, until); }), HasSubstr("not a number"));
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(store.add("n", kMax, until), kMax);
  EXPECT_THAT(error_of([&] { store.add("n", 1, until); }), HasSubstr("the sum is too large"));
  EXPECT_THAT(error_of([&] {
                for (int i = 0; i < 100; ++i) store.set("key" + std::to_string(i), "0123456789", until);
              }),
              HasSubstr("the store is full"));
  store.set("key0", "other", until);
  EXPECT_EQ(store.get("key0", until), "other");
}

TEST(JobStore, ASilentServerIsAnErrorAtTheDeadline) {
  // A listener that no program serves: the system accepts connections, and no answer comes.
  const auto silent = listen_on_loopback();
  const auto port = SocketAddress::of_socket(silent.get()).port();
  EXPECT_THAT(error_of([&] { JobStoreConnection::open("127.0.0.1", port, {}, in(milliseconds{100})); }),
              HasSubstr("the connection is accepted but not answered: the process there hangs or is stopped"));
}

TEST(JobStore, ConnectsToAServerThatStartsLater) {
  HeldPort port;
  const auto number = port.number();
  std::promise<void> tried;
  bool told = false;
  auto connection = std::async(std::launch::async, [&] {
    return JobStoreConnection::open("127.0.0.1", number,
                                    {.still_trying =
                                         [&](const std::string&) {
                                           if (!std::exchange(told, true)) tried.set_value();
                                         }},
                                    in(milliseconds{20'000}));
  });
  tried.get_future().wait();
  port.release();
  const JobStoreServer server{listen_for("127.0.0.1", number, false, in(milliseconds{10'000})), {}};
  EXPECT_EQ(connection.get().count_keys(in(milliseconds{10'000})), 0);
}

TEST(JobStore, SaysThatANameDoesNotResolve) {
  const auto text = error_of([] { JobStoreConnection::open("no-such\x1b.invalid", 1, {}, in(milliseconds{300})); });
  EXPECT_THAT(text, HasSubstr("the host name \"no-such\\x1b.invalid\" does not resolve: "));
}

TEST(JobStore, ThrowsWhenItsServerIsGone) {
  auto served = std::make_unique<Served>();
  const auto store = c10::make_intrusive<JobStore>(served->connect(), milliseconds{10'000});
  served.reset();
  EXPECT_THROW(store->set("key", "value"), c10::DistNetworkError);
  EXPECT_THROW(store->get("key"), c10::DistNetworkError);
  EXPECT_ANY_THROW(store->clone());
}

TEST(JobStoreServer, ServesASecondStoreToOtherCredentialsAndEndsTheFormerOne) {
  const Served served{{.token = "agents", .run_id = "run"}};
  auto agent = served.connect();
  agent.set("key", "of the agents", in(milliseconds{10'000}));
  EXPECT_THAT(error_of([&] { served.connect({.token = "round 0", .run_id = "run"}); }),
              HasSubstr("DDPXX_TOKEN differs"));

  served.server->replace_second_store({.token = "round 0", .run_id = "run"});
  auto rank = served.connect({.token = "round 0", .run_id = "run"});
  EXPECT_EQ(rank.get("key", in(milliseconds{0})), std::nullopt) << "the stores must not share keys";
  rank.set("key", "of round 0", in(milliseconds{10'000}));
  EXPECT_EQ(agent.get("key", in(milliseconds{0})), "of the agents");
  EXPECT_THAT(error_of([&] { served.connect({.token = "round 0", .run_id = "other"}); }), HasSubstr("another run"));

  served.server->replace_second_store({.token = "round 1", .run_id = "run"});
  EXPECT_THAT(error_of([&] { rank.get("key", in(milliseconds{0})); }), HasSubstr("has closed the connection"));
  EXPECT_THAT(error_of([&] { served.connect({.token = "round 0", .run_id = "run"}); }),
              HasSubstr("DDPXX_TOKEN differs"))
      << "a process of the former round must be refused";
  auto next = served.connect({.token = "round 1", .run_id = "run"});
  EXPECT_EQ(next.get("key", in(milliseconds{0})), std::nullopt);
  EXPECT_EQ(agent.get("key", in(milliseconds{0})), "of the agents");
}

}  // namespace
}  // namespace ddpxx::job_store_test
