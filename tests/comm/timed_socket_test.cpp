// A connection whose calls end at their deadlines, tested against a socket that this test serves.
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/comm/listen.hpp>
#include <ddpxx/comm/socket_address.hpp>
#include <ddpxx/comm/timed_socket.hpp>
#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx::timed_socket_test {
namespace {

using std::chrono::milliseconds;
using End = TimedSocket::End;

constexpr milliseconds kLong{10'000}, kShort{50};

TimedSocket::Time in(milliseconds time) { return TimedSocket::Clock::now() + time; }

/// Both ends of a connection over the loopback interface.
struct Pair {
  explicit Pair(int interrupt = -1) {
    near = TimedSocket::connect(SocketAddress::of_socket(listener.get()), interrupt, in(kLong));
    if (near.is_open()) far = Descriptor{::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)};
  }
  void answer(std::string_view bytes) const {
    ASSERT_EQ(::send(far.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }

  Descriptor listener = listen_on_loopback();
  TimedSocket near;
  Descriptor far;
};

std::string text(const std::array<char, 6>& bytes) { return {bytes.begin(), bytes.end()}; }

TEST(TimedSocket, IsNotOpenWhereNothingListens) {
  auto listener = listen_on_loopback();
  const auto address = SocketAddress::of_socket(listener.get());
  listener.close();
  const auto socket = TimedSocket::connect(address, -1, in(kLong));
  EXPECT_EQ(errno, ECONNREFUSED);
  EXPECT_FALSE(socket.is_open());
}

TEST(TimedSocket, SendsAndFillsWhatComesInPieces) {
  Pair pair;
  ASSERT_TRUE(pair.near.is_open());
  EXPECT_EQ(pair.near.send("ask", in(kLong)), End::done);
  std::array<char, 3> asked{};
  ASSERT_EQ(::recv(pair.far.get(), asked.data(), asked.size(), MSG_WAITALL), 3);
  EXPECT_EQ(std::string_view(asked.data(), asked.size()), "ask");
  std::thread other{[&] {
    pair.answer("an");
    std::this_thread::sleep_for(kShort);
    pair.answer("swer");
  }};
  std::array<char, 6> answer{};
  EXPECT_EQ(pair.near.receive(answer, in(kLong)), End::done);
  EXPECT_EQ(text(answer), "answer");
  other.join();
}

TEST(TimedSocket, IsLateWhereTheOtherProcessIsSilentOrReadsNothing) {
  Pair pair;
  std::array<char, 6> answer{};
  pair.answer("half");
  const auto before = TimedSocket::Clock::now();
  EXPECT_EQ(pair.near.receive(answer, in(kShort)), End::late);
  const std::string much(std::size_t{64} << 20U, 'x');
  EXPECT_EQ(pair.near.send(much, in(kShort)), End::late);
  EXPECT_GE(TimedSocket::Clock::now() - before, 2 * kShort);
  EXPECT_TRUE(pair.near.is_open());
}

TEST(TimedSocket, IsClosedWhereTheOtherProcessHasEnded) {
  Pair pair;
  pair.answer("half");
  pair.far.close();
  std::array<char, 6> answer{};
  EXPECT_EQ(pair.near.receive(answer, in(kLong)), End::closed);
  auto end = End::done;  // the first bytes may still be taken before the answer that nothing reads them
  for (int i = 0; i < 100 && end == End::done; ++i) {
    end = pair.near.send("more", in(kLong));
    std::this_thread::sleep_for(milliseconds{1});
  }
  EXPECT_EQ(end, End::closed);
}

TEST(TimedSocket, EndsEachWaitByAnInterrupt) {
  const Descriptor interrupt{::eventfd(0, EFD_CLOEXEC)};
  Pair pair{interrupt.get()};
  const std::uint64_t one = 1;
  ASSERT_EQ(::write(interrupt.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  const auto expect_stopped = [](const auto& body) {
    try {
      body();
      ADD_FAILURE() << "was not interrupted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::stopped);
    }
  };
  std::array<char, 6> answer{};
  const std::string much(std::size_t{64} << 20U, 'x');
  const auto before = TimedSocket::Clock::now();
  expect_stopped([&] { pair.near.receive(answer, in(kLong)); });
  expect_stopped([&] { pair.near.send(much, in(kLong)); });
  expect_stopped([&] { TimedSocket::pause(interrupt.get(), in(kLong)); });
  EXPECT_LT(TimedSocket::Clock::now() - before, kLong);
}

}  // namespace
}  // namespace ddpxx::timed_socket_test
