// Programs that do not belong to the job connect to the port of its store.
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/job_store_connection.hpp>
#include <ddpxx/comm/job_store_protocol.hpp>
#include <ddpxx/comm/job_store_server.hpp>
#include <ddpxx/comm/store_hello.hpp>

namespace ddpxx::strangers_test {
namespace {

using std::chrono::milliseconds;

JobStoreConnection::Time in(milliseconds time) { return JobStoreConnection::Clock::now() + time; }

/// A store with a token, its port, and a member of the job that uses it.
class Strangers : public testing::Test {
 protected:
  static constexpr milliseconds kHelloTime{300};

  Strangers() { serve(kHelloTime); }

  /// Starts the store, or another one in its place, that waits this long for a hello.
  void serve(milliseconds hello_time) {
    member_.reset();
    std::vector<Descriptor> listeners;
    listeners.push_back(listen_on_loopback());
    address_ = SocketAddress::of_socket(listeners[0].get());
    server_ = std::make_unique<JobStoreServer>(std::move(listeners), credentials_,
                                               StoreLimits{.hello_time = hello_time, .newcomers = 64},
                                               [&](const std::string& text) { warnings_.push_back(text); });
    member_ = join();
  }

  JobStoreConnection join() const {
    return JobStoreConnection::open("127.0.0.1", address_.port(), {.credentials = credentials_},
                                    in(milliseconds{20'000}));
  }

  /// A connection that has sent nothing yet.
  Descriptor connect() const {
    Descriptor socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    EXPECT_EQ(::connect(socket.get(), address_.get(), address_.length()), 0);
    return socket;
  }
  Descriptor send(const std::string& bytes) const {
    auto socket = connect();
    EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    return socket;
  }
  /// All that the server sends until it closes the connection.
  static std::string answer(const Descriptor& socket) {
    std::string all;
    std::array<char, 256> piece{};
    while (true) {
      const auto count = ::recv(socket.get(), piece.data(), piece.size(), 0);
      if (count <= 0) return all;
      all.append(piece.data(), static_cast<std::size_t>(count));
    }
  }

  /// The job works as if no stranger were connected: both for a connected member and for one that connects now.
  void expect_unharmed() {
    const auto until = in(milliseconds{20'000});
    EXPECT_EQ(member_->add("n", 1, until), ++count_);
    auto another = join();
    EXPECT_EQ(another.get("n", until), std::to_string(count_));
    EXPECT_EQ(another.count_keys(until), 1) << "a stranger has stored a key";
  }

  static std::size_t num_descriptors() {
    const std::filesystem::directory_iterator all{"/proc/self/fd"};
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }

  /// The warnings so far. The server's thread has ended then.
  const std::vector<std::string>& warnings_at_end() {
    server_.reset();
    return warnings_;
  }

  StoreCredentials credentials_{.token = "secret", .run_id = "run"};
  std::vector<std::string> warnings_;  // written in the server's thread
  SocketAddress address_;
  std::unique_ptr<JobStoreServer> server_;
  std::optional<JobStoreConnection> member_;
  std::int64_t count_ = 0;
};

TEST_F(Strangers, GetNoAnswerWithoutAHello) {
  for (const std::string& bytes : {std::string{"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"},
                                   std::string(100'000, '\xA5'), std::string(64, '\0')}) {
    auto socket = connect();
    // The send may be incomplete: the server closes the connection after the first bytes.
    [[maybe_unused]] const auto sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    EXPECT_EQ(answer(socket), "");
  }
  expect_unharmed();
}

TEST_F(Strangers, OfAnotherVersionGetAnAnswerThatSaysSo) {
  EXPECT_EQ(answer(send(std::string{"ddpxx\0\0\xFF\0\0\0\0", 12} + "more of another form")), "v");
  expect_unharmed();
}

TEST_F(Strangers, GetOneByteForAWrongTokenAndStoreNothing) {
  const auto hello = detail::hello_message({.token = "guess", .run_id = "run"});
  auto set = detail::StoreMessage{detail::StoreOperation::set}.text("stolen").text("value");
  EXPECT_EQ(answer(send(hello)), "t");
  auto socket = send(hello + std::move(set).finish());
  EXPECT_LE(answer(socket).size(), 1U);
  EXPECT_EQ(answer(send(detail::hello_message({.token = "secret", .run_id = "other"}))), "r");
  expect_unharmed();
}

TEST_F(Strangers, AreWarnedOfOnceWithTheReason) {
  connect();  // a scan of ports, or a check of health, sends nothing
  EXPECT_EQ(answer(send(detail::hello_message({.token = "secret", .run_id = "other"}))), "r");
  EXPECT_EQ(answer(send(detail::hello_message({.token = "guess", .run_id = "run"}))), "t");
  EXPECT_EQ(answer(send("GET / HTTP/1.1\r\n\r\n")), "");
  EXPECT_THAT(
      warnings_at_end(),
      testing::ElementsAre("a process at 127.0.0.1 has connected to the store of this run and was refused, since "
                           "it belongs to another run; further ones are refused without a message"));
}

TEST_F(Strangers, CannotMakeTheStoreKeepTheirBytes) {
  serve(milliseconds{60'000});  // so that it is not this limit that ends the connections
  // A header that announces a token and a run id of 65535 bytes each, and less than that of the token.
  const auto bytes = std::string{detail::kHelloMagic} + "\xFF\xFF\xFF\xFF" + std::string(60'000, 'x');
  const auto before = JobStoreConnection::Clock::now();
  std::vector<Descriptor> held;
  for (int i = 0; i < 50; ++i) {
    held.push_back(connect());
    // The send may be incomplete: the server closes the connection after the header.
    [[maybe_unused]] const auto sent = ::send(held.back().get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  for (const auto& socket : held) EXPECT_EQ(answer(socket), "");
  EXPECT_LT(JobStoreConnection::Clock::now() - before, milliseconds{30'000}) << "the store waited for the other bytes";
  expect_unharmed();
}

TEST_F(Strangers, AreClosedWhenTheyStaySilentOrSlow) {
  const auto silent = connect(), partial = send("ddpxx");
  bool slow_is_closed = false;
  std::thread slow{[&] {  // its whole hello would take a second
    const auto socket = connect();
    for (const char byte : detail::hello_message(credentials_)) {
      if (::send(socket.get(), &byte, 1, MSG_NOSIGNAL) != 1) break;
      std::this_thread::sleep_for(milliseconds{50});
    }
    char accepted = 0;
    slow_is_closed = ::recv(socket.get(), &accepted, 1, 0) != 1;
  }};
  EXPECT_EQ(answer(silent), "");
  EXPECT_EQ(answer(partial), "");
  slow.join();
  EXPECT_TRUE(slow_is_closed);
  expect_unharmed();
}

TEST_F(Strangers, MayResetTheirConnections) {
  for (int i = 0; i < 200; ++i) {
    const auto socket = connect();
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  expect_unharmed();
}

TEST_F(Strangers, AreDroppedOldestFirstWhenTheyAreTooMany) {
  std::vector<Descriptor> held;
  const auto before = num_descriptors();
  for (int i = 0; i < 500; ++i) held.push_back(connect());
  EXPECT_EQ(answer(held.front()), "") << "the oldest connection was not dropped";
  expect_unharmed();
  // Allowed descriptors: the 500 client ends here, the 64 server ends that the server grants, and 8 for the test
  // itself.
  const auto until = in(milliseconds{20'000});
  while (num_descriptors() > before + 500 + 64 + 8 && JobStoreConnection::Clock::now() < until)
    std::this_thread::sleep_for(milliseconds{10});
  EXPECT_LE(num_descriptors(), before + 500 + 64 + 8);
}

// The server's process has no descriptor left: the server must neither spin nor lose the job.
TEST_F(Strangers, DoNotHarmAProcessThatIsOutOfDescriptors) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // fork() does not copy the parent's threads, so the child serves a store of its own and opens the strangers'
    // connections itself.
    std::vector<Descriptor> listeners;
    listeners.push_back(listen_on_loopback());
    const auto address = SocketAddress::of_socket(listeners[0].get());
    const JobStoreServer server{
        std::move(listeners), credentials_, {.hello_time = milliseconds{60'000}, .newcomers = 64}};
    auto member =
        JobStoreConnection::open("127.0.0.1", address.port(), {.credentials = credentials_}, in(milliseconds{20'000}));
    std::vector<Descriptor> held, late_comers;
    const auto new_socket = [] { return Descriptor{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)}; };
    const auto connect_to_server = [&](const Descriptor& socket) {
      return ::connect(socket.get(), address.get(), address.length()) == 0;
    };
    for (int i = 0; i < 10; ++i) late_comers.push_back(new_socket());
    const rlimit few{100, 100};
    ::setrlimit(RLIMIT_NOFILE, &few);
    for (auto socket = new_socket(); socket; socket = new_socket()) {
      connect_to_server(socket);
      held.push_back(std::move(socket));
    }
    // The server has no descriptor left to accept these connections.
    for (const auto& socket : late_comers) connect_to_server(socket);
    const auto used_before = std::clock();
    bool works = true;
    for (int i = 1; works && i <= 20; ++i) {
      works = member.add("n", 1, in(milliseconds{20'000})) == i;
      std::this_thread::sleep_for(milliseconds{20});
    }
    const bool spins = std::clock() - used_before > CLOCKS_PER_SEC / 4;
    held.clear();
    auto late =
        JobStoreConnection::open("127.0.0.1", address.port(), {.credentials = credentials_}, in(milliseconds{20'000}));
    works = works && late.get("n", in(milliseconds{20'000})) == "20";
    ::_exit(works ? (spins ? 2 : 0) : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "code 1: the job was disturbed; code 2: the server used CPU time while it had nothing to do";
}

// These clients know the token: a malformed request costs them only their own connection.
TEST_F(Strangers, WithAMalformedRequestLoseOnlyTheirConnection) {
  const auto hello = detail::hello_message(credentials_);
  const auto request = [](std::string bytes) {
    std::string length;
    detail::append_number(length, static_cast<std::uint32_t>(bytes.size()));
    return length + bytes;
  };
  const auto text_of = [](std::uint32_t length) {
    std::string bytes;
    detail::append_number(bytes, length);
    return bytes;
  };
  for (const std::string& bytes :
       {std::string{"\xFF\xFF\xFF\xFF", 4}, request("\x63"), request(""), request("\1" + text_of(0xFFFFFFFFU)),
        request("\1" + text_of(3) + "ab"), request(std::string{"\3"} + text_of(1) + "k")})
    EXPECT_EQ(answer(send(hello + bytes)), "a");
  expect_unharmed();

  // A second request is sent before the first is answered; the server holds the first.
  const auto socket = send(hello);
  char accepted = 0;
  ASSERT_EQ(::recv(socket.get(), &accepted, 1, 0), 1);
  const auto wait = detail::StoreMessage{detail::StoreOperation::wait}.number(60'000).text("").text("never").finish();
  const auto two = wait + wait;
  ASSERT_EQ(::send(socket.get(), two.data(), two.size(), MSG_NOSIGNAL), static_cast<ssize_t>(two.size()));
  EXPECT_EQ(answer(socket), "");
  expect_unharmed();
}

}  // namespace
}  // namespace ddpxx::strangers_test
