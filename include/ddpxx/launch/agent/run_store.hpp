// ddpxx/launch/agent/run_store.hpp — the store where the ranks of a run meet, which an agent serves, and the meeting of
// agents.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <poll.h>
#include <sstream>
#include <string>
#include <sys/signalfd.h>
#include <utility>
#include <vector>

#include <ddpxx/comm/host_address.hpp>
#include <ddpxx/comm/job_store_connection.hpp>
#include <ddpxx/comm/job_store_server.hpp>
#include <ddpxx/comm/roll_call.hpp>
#include <ddpxx/comm/secret.hpp>
#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/launch/agent/free_port.hpp>
#include <ddpxx/launch/bare_host.hpp>
#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/torchrun_environment.hpp>

namespace ddpxx::detail {

/// The store of one attempt of a run. On one machine the agent serves it on the loopback interface, at a free
/// port. On several machines the agent of node 0 serves it at the plan's master port, and the agents meet there first.
class RunStore {
 public:
  /// Construct it on the agent's only thread, after its `SignalInbox`, so that the threads of the store block signals.
  /// `say` gets lines that name the nodes which are missing.
  /// Ranks   Collective over the agents of all machines.
  /// Errors  `peer` if the port is in use, the store belongs to another run, or nodes do not come or disagree about the
  ///         run; `stopped` if a signal to end comes meanwhile, which stays in the inbox.
  RunStore(const LaunchPlan& plan, const std::string& run_id, const std::function<void(const std::string&)>& say);

  /// Writes the address and the credentials of the store into `launch`.
  void describe_to(Launch& launch) const {
    launch.store_host = StoreHost::ddpxx_run;
    launch.store = address_;
    launch.token = credentials_.token;
  }
  /// The port that the agents have agreed on for MASTER_PORT, where Python programs meet; none on one machine.
  std::optional<std::uint16_t> master_port() const noexcept { return master_port_; }
  /// Number of this machine: that of the plan, or the one that the meeting has given it.
  int node_rank() const noexcept { return node_rank_; }

 private:
  /// Serves the store if this machine is node 0.
  void serve(const LaunchPlan& plan, const std::string& host, std::uint16_t port, JobStoreConnection::Time deadline);
  /// The number of this machine among those that arrive.
  int number_by_arrival(const LaunchPlan& plan, const std::string& url, JobStoreConnection::Time deadline);
  void meet_agents(const LaunchPlan& plan, const std::function<void(const std::string&)>& say);
  /// Reads the facts of the other nodes, and refuses nodes that disagree with this one.
  void compare(const LaunchPlan& plan, const Roll& roll);
  /// On node 0, waits until the other nodes have read all facts: its agent may end soon, and the store with it.
  void let_all_read(const LaunchPlan& plan, const std::string& url, JobStoreConnection::Time deadline);

  StoreCredentials credentials_;
  std::string address_;
  int node_rank_ = 0;
  std::optional<std::uint16_t> master_port_;
  std::vector<SocketAddress> listening_at_;  // addresses of the server
  std::unique_ptr<JobStoreServer> server_;
  std::optional<JobStoreConnection> connection_;  // claims this node's number during the lifetime of the agent
};

/// A descriptor that is readable if a signal that ends the run is pending. The `SignalInbox` reads the signal.
inline Descriptor ending_signals() {
  sigset_t ending;
  ::sigemptyset(&ending);
  for (const int number : {SIGINT, SIGTERM, SIGQUIT, SIGHUP}) ::sigaddset(&ending, number);
  return Descriptor{::signalfd(-1, &ending, SFD_NONBLOCK | SFD_CLOEXEC)};
}

/// True if an address of `host` belongs to this machine.
/// Errors  `peer` if the name does not resolve.
inline bool is_own_host(const std::string& host, JobStoreConnection::Time deadline) {
  const auto addresses = resolve(host, 0, deadline);
  return std::ranges::any_of(addresses, [](const SocketAddress& address) {
    return static_cast<bool>(listen_at(address));  // the system lets a program listen at its own addresses only
  });
}

/// The facts that the agent of a node sends to the others.
struct NodeFacts {
  int num_nodes = 0;
  int ranks_per_node = 0;
  int master_port = 0;

  static NodeFacts parse(const std::string& text) {
    std::istringstream words{text};
    NodeFacts facts;
    if (!(words >> facts.num_nodes >> facts.ranks_per_node >> facts.master_port))
      throw Error{Errc::peer, "the agent of another node tells \"" + harmless(text.substr(0, 200)) +
                                  "\", which this version does not understand: all nodes need one version"};
    return facts;
  }
  /// The facts as text. `mark` makes the texts of two agents with equal facts different.
  std::string text(const std::string& mark) const {
    return std::to_string(num_nodes) + ' ' + std::to_string(ranks_per_node) + ' ' + std::to_string(master_port) + ' ' +
           mark;
  }
};

inline RunStore::RunStore(const LaunchPlan& plan, const std::string& run_id,
                          const std::function<void(const std::string&)>& say)
    : credentials_{environment("DDPXX_TOKEN").value_or(""), run_id}, node_rank_{plan.node_rank} {
  if (plan.num_nodes > 1) {
    meet_agents(plan, say);
    return;
  }
  if (credentials_.token.empty()) credentials_.token = make_secret();
  std::vector<Descriptor> listeners;
  listeners.push_back(listen_on_loopback());
  address_ = "127.0.0.1:" + std::to_string(SocketAddress::of_socket(listeners[0].get()).port());
  server_ = std::make_unique<JobStoreServer>(std::move(listeners), credentials_);
}

inline void RunStore::serve(const LaunchPlan& plan, const std::string& host, std::uint16_t port,
                            JobStoreConnection::Time deadline) {
  const bool by_arrival = plan.node_numbers == NodeNumbers::by_arrival;
  if (by_arrival ? !plan.serves_meeting.value_or(is_own_host(host, deadline)) : plan.node_rank != 0) return;
  std::vector<Descriptor> listeners;
  try {
    listeners = listen_for(host, port, true, deadline);
  } catch (const Error&) {
    // Another agent of this machine serves the meeting. If another program has the port, connecting to it fails.
    if (by_arrival && !plan.serves_meeting) return;
    throw;
  }
  for (const auto& listener : listeners) listening_at_.push_back(SocketAddress::of_socket(listener.get()));
  server_ = std::make_unique<JobStoreServer>(std::move(listeners), credentials_);
}

inline int RunStore::number_by_arrival(const LaunchPlan& plan, const std::string& url,
                                       JobStoreConnection::Time deadline) {
  if (server_) return 0;
  const auto number = connection_->add("ddpxx/agents/arrived", 1, deadline);
  if (number < plan.num_nodes) return static_cast<int>(number);
  throw Error{Errc::peer, "all " + std::to_string(plan.num_nodes) + " nodes of the run have come to " + url +
                              " before this one: start it on --nnodes machines, or give this run another --rdzv-id"};
}

inline void RunStore::meet_agents(const LaunchPlan& plan, const std::function<void(const std::string&)>& say) {
  const auto deadline = std::chrono::steady_clock::now() + plan.join_timeout;
  const auto interrupt = ending_signals();
  const auto host = without_brackets(plan.master_address);
  const std::uint16_t port = plan.master_port.value();
  const auto url = store_url(host, port);
  address_ = url.substr(url.find("//") + 2);

  WaitingLine line;
  const auto still_trying = [&](const std::string& reason) {
    if (line.take())
      say("waiting for the agent of node 0 at " + url + ": " + reason + " (" + line.time_of(plan.join_timeout) + ')');
  };
  std::vector<SocketAddress> addresses;
  NodeFacts mine{.num_nodes = plan.num_nodes, .ranks_per_node = plan.ranks_per_node};
  serve(plan, host, port, deadline);
  if (server_) {
    addresses = listening_at_;
    if (credentials_.token.empty())
      say("DDPXX_TOKEN is not set: whoever can reach " + url +
          " and knows the run's id can take part; give all nodes the same secret");
    // --master-port is the port of the store, so rank 0 of a Python program needs another one for its own store.
    mine.master_port = free_port(port < 65535 ? static_cast<std::uint16_t>(port + 1) : std::uint16_t{0});
  } else {
    addresses = resolve(host, port, deadline, [&](const std::string& reason) {
      still_trying(reason);
      pollfd signal{interrupt.get(), POLLIN, 0};
      if (::poll(&signal, 1, 0) > 0) throw Error{Errc::stopped, "interrupted while waiting for a name to resolve"};
    });
  }
  connection_ = JobStoreConnection::open(
      addresses, url, {.credentials = credentials_, .interrupt = interrupt.get(), .still_trying = still_trying},
      deadline);
  try {
    if (plan.node_numbers == NodeNumbers::by_arrival) node_rank_ = number_by_arrival(plan, url, deadline);
    compare(plan, call_roll(*connection_, {.kind = "node",
                                           .number = node_rank_,
                                           .size = plan.num_nodes,
                                           .prefix = "ddpxx/agents/",
                                           .facts = mine.text(make_secret()),
                                           .where = url,
                                           .limit = plan.join_timeout,
                                           .deadline = deadline,
                                           .say = say}));
    let_all_read(plan, url, deadline);
  } catch (const Error& error) {
    if (error.code() == Errc::stopped || server_ || !connection_->lost()) throw;
    throw Error{Errc::peer, "the launcher of node 0, which serves the meeting at " + url +
                                ", has ended; its own message says more"};
  }
}

inline void RunStore::let_all_read(const LaunchPlan& plan, const std::string& url, JobStoreConnection::Time deadline) {
  const auto read_by = [](int node) { return "ddpxx/agents/read" + std::to_string(node); };
  std::vector<std::string> all_read;
  for (int node = 1; node < plan.num_nodes; ++node) all_read.push_back(read_by(node));
  const auto now = JobStoreConnection::Clock::now();
  const auto until = std::max(deadline, now + JobStoreConnection::kAnswerTime);
  if (!server_) return connection_->set(read_by(node_rank_), "", until);
  const auto missing = connection_->wait(all_read, "", until).missing;
  if (missing.empty()) return;
  std::vector<int> nodes;
  for (const auto index : missing) nodes.push_back(static_cast<int>(index) + 1);
  throw Error{Errc::peer, "node " + number_list(nodes) + " came to " + url +
                              " but did not read what the nodes tell each other: its launcher has ended or hangs"};
}

inline void RunStore::compare(const LaunchPlan& plan, const Roll& roll) {
  for (std::size_t node = 0; node < roll.facts.size(); ++node) {
    const auto facts = NodeFacts::parse(roll.facts[node]);
    if (facts.num_nodes != plan.num_nodes)
      throw Error{Errc::peer, "node " + std::to_string(node) + " believes in " + std::to_string(facts.num_nodes) +
                                  " nodes, node " + std::to_string(plan.node_rank) + " in " +
                                  std::to_string(plan.num_nodes) + ": give all nodes the same --nnodes"};
    if (node == 0) master_port_ = static_cast<std::uint16_t>(facts.master_port);
    if (facts.ranks_per_node != plan.ranks_per_node)
      throw Error{Errc::peer, "node " + std::to_string(node) + " starts " + std::to_string(facts.ranks_per_node) +
                                  " ranks, node " + std::to_string(node_rank_) + " starts " +
                                  std::to_string(plan.ranks_per_node) + ": give all nodes the same --nproc-per-node"};
  }
}

}  // namespace ddpxx::detail
