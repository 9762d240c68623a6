// What agents do with a store that this process serves.
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <ddpxx/comm/job_store_connection.hpp>
#include <ddpxx/comm/job_store_server.hpp>
#include <ddpxx/comm/listen.hpp>
#include <ddpxx/comm/socket_address.hpp>
#include <ddpxx/comm/store_credentials.hpp>
#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/launch/agent/agents_store.hpp>
#include <ddpxx/launch/agent/node_facts.hpp>
#include <ddpxx/launch/agent/roster.hpp>
#include <ddpxx/launch/agent/store_wait.hpp>
#include <ddpxx/launch/launch_plan.hpp>

#include "../error_of.hpp"
#include "../without_threads.hpp"

namespace ddpxx::store_wait_test {
namespace {

using namespace detail;
using std::chrono::milliseconds;

JobStoreConnection::Time soon() { return JobStoreConnection::Clock::now() + std::chrono::seconds{10}; }

/// A store, and a connection to it.
class LocalStore {
 public:
  LocalStore() {
    std::vector<Descriptor> listeners;
    listeners.push_back(listen_on_loopback());
    const auto port = SocketAddress::of_socket(listeners[0].get()).port();
    server_ = std::make_unique<JobStoreServer>(std::move(listeners), StoreCredentials{});
    connection_.emplace(JobStoreConnection::open("127.0.0.1", port, {}, soon()));
  }
  JobStoreConnection& connection() { return *connection_; }

 private:
  std::unique_ptr<JobStoreServer> server_;
  std::optional<JobStoreConnection> connection_;
};

TEST(StoreWait, GoesOnWhenTheServerHasHeldItsRequestForAsLongAsItMay) {
  LocalStore store;
  auto& connection = store.connection();
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

TEST(StoreWait, NamesTheLimitOfTheSystem) {
  LocalStore store;
  without_threads([&] {
    const auto wait = [&] { StoreWait{store.connection(), {"key"}}; };
    EXPECT_EQ(code_of(wait), Errc::peer);
    EXPECT_EQ(error_of(wait),
              "cannot wait for the agents' store: no thread (limit: ulimit -u); cause=Resource temporarily "
              "unavailable");
  });
}

TEST(Roster, KnowsTheLongestTimeThatRanksMayNeedToEnd) {
  LocalStore store;
  AgentsStore agents{store.connection()};
  const LaunchPlan plan{.num_nodes = 2, .min_nodes = 2, .grace = milliseconds{1'500}};
  auto patient = plan;
  patient.node_rank = 1;
  patient.grace = std::chrono::minutes{10};
  agents.set(AgentsStore::key("agent", 0), NodeFacts::of_this_node(plan).text("a"));
  agents.set(AgentsStore::key("agent", 1), NodeFacts::of_this_node(patient).text("b"));
  Roster roster{agents, plan};
  roster.update(/*has_begun=*/false);
  EXPECT_EQ(roster.longest_grace(), std::chrono::minutes{10});
  roster.note_loss(1);
  EXPECT_EQ(roster.longest_grace(), milliseconds{1'500});
}

TEST(NodeFacts, ContradictThoseOfANodeWithOtherFlags) {
  const NodeFacts facts{
      .host = "a", .min_nodes = 1, .num_nodes = 2, .ranks_per_node = 4, .max_restarts = 3, .grace = milliseconds{1}};
  EXPECT_EQ(facts.contradiction(0, NodeFacts::parse(facts.text("b")), 1), "");
  auto other = facts;
  other.max_restarts = 5;
  EXPECT_EQ(facts.contradiction(0, other, 1), "node 0 has --max-restarts 3, node 1 has 5: give all nodes the same");
  other.ranks_per_node = 8;
  EXPECT_EQ(facts.contradiction(0, other, 1),
            "node 0 starts 4 ranks, node 1 starts 8: give all nodes the same --nproc-per-node");
  other.min_nodes = 2;
  EXPECT_EQ(facts.contradiction(0, other, 1),
            "node 0 was started for 1:2 nodes, but node 1 for 2: give all nodes the same --nnodes");
}

}  // namespace
}  // namespace ddpxx::store_wait_test
