// A rank of ddpxx and a rank of Python in one group.
#include <cstdint>
#include <future>
#include <string>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/connect.hpp>
#include <ddpxx/testing.hpp>

#include "../loopback_listener.hpp"
#include "python.hpp"

namespace ddpxx::python_ranks_test {
namespace {

/// Makes the calls of python_ranks.py on this side. Returns the number that Python's rank sends.
std::int64_t take_part(int rank, std::uint16_t port, int listener) {
  ConnectOptions options{{.join_timeout = 60, .python_ranks = true}};
  options.listening_socket = listener;
  auto group = connect("tcp://127.0.0.1:" + std::to_string(port),
                       {.rank = Rank{rank},
                        .world_size = WorldSize{2},
                        .local_rank = LocalRank{rank},
                        .local_world_size = LocalWorldSize{2}},
                       options);
  auto total = at::arange(3.0) + 10 * rank;
  all_reduce(total, group);
  EXPECT_TRUE(at::equal(total, at::tensor({10.0F, 12.0F, 14.0F}))) << total;
  for (int root = 0; root < 2; ++root) {
    auto value = at::full({2}, 100.0F + static_cast<float>(rank));
    broadcast(value, group, root);
    EXPECT_TRUE(at::equal(value, at::full({2}, 100.0F + static_cast<float>(root)))) << value;
  }
  auto told = at::zeros({1}, at::kLong);
  broadcast(told, group, 1 - rank);
  barrier(group);
  group.leave();
  return told.item<std::int64_t>();
}

TEST(PythonRanks, MeetRanksOfOursInOneGroup) {
  const auto [listener, our_port] = loopback_listener();
  auto python = std::async(std::launch::async,
                           [port = our_port] { return run_python("python_ranks.py", {std::to_string(port)}); });
  const auto their_port = take_part(0, our_port, listener);
  take_part(1, static_cast<std::uint16_t>(their_port), -1);
  EXPECT_EQ(python.get(),
            "1 [10.0, 12.0, 14.0] [100.0, 100.0, 101.0, 101.0]\n"
            "0 [10.0, 12.0, 14.0] [100.0, 100.0, 101.0, 101.0]\n");
}

TEST(PythonRanks, AreMetOverGlooOnly) {
  ConnectOptions options{{.python_ranks = true}, at::Device{at::kCUDA, 0}};
  try {
    meet("127.0.0.1", 1, {.rank = Rank{1}, .world_size = WorldSize{2}}, options);
    ADD_FAILURE() << "the ranks met";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::config);
    EXPECT_NE(std::string{error.what()}.find("over Gloo only"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ddpxx::python_ranks_test
