// ddpxx/launch/agent/run_store.hpp — the store of a run, which one agent serves.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <poll.h>
#include <span>
#include <string>
#include <string_view>
#include <sys/signalfd.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ddpxx/comm/job_store_connection.hpp>
#include <ddpxx/comm/job_store_server.hpp>
#include <ddpxx/comm/listen.hpp>
#include <ddpxx/comm/resolve.hpp>
#include <ddpxx/comm/secret.hpp>
#include <ddpxx/comm/socket_address.hpp>
#include <ddpxx/comm/store_limits.hpp>
#include <ddpxx/comm/waiting_line.hpp>
#include <ddpxx/core/descriptor.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/bare_host.hpp>
#include <ddpxx/launch/launch_plan.hpp>

namespace ddpxx::detail {

/// What `resolve` tells while a name does not resolve.
using StillTrying = std::function<void(const std::string& reason)>;

/// The store where the agents of a run meet, and a second one at the same port where the ranks of a round meet. On one
/// machine the agent serves it on the loopback interface, at a free port. On several machines the agent of node 0
/// serves it at the plan's master port, and the others connect to it.
class RunStore {
 public:
  /// Construct it on the agent's only thread, after its `SignalInbox`, so that the threads of the store block signals.
  /// `say` gets lines that say where the agent waits.
  /// Errors  `peer` if the port is in use, no agent serves the store or it belongs to another run; `stopped` if a signal
  ///         to end comes meanwhile, which stays in the inbox.
  RunStore(const LaunchPlan& plan, const std::string& run_id, const std::function<void(const std::string&)>& say);

  /// Whether this agent serves the store.
  bool serves() const noexcept { return server_ != nullptr; }
  /// The connection to the store of the agents; none on one machine.
  std::optional<JobStoreConnection>& connection() noexcept { return connection_; }
  const std::string& url() const noexcept { return url_; }
  /// `host:port`, where the ranks meet.
  std::string address() const { return url_.substr(url_.find("//") + 2); }

  /// Makes a new store for the ranks of a round; those of the former round are disconnected and refused. Only the agent
  /// that serves the store calls it.
  void open_round(const std::string& token) {
    server_->replace_second_store({.token = token, .run_id = credentials_.run_id});
  }

 private:
  /// Serves the store if this machine is the one that the plan names. Where any agent of that machine may serve it and
  /// this one cannot listen, it notes why.
  void serve(const LaunchPlan& plan, const std::string& host, std::uint16_t port, JobStoreConnection::Time deadline,
             const StillTrying& still_trying);
  /// The connection to the server at `addresses`.
  /// Errors  if no server answers, also says why this agent does not serve the store itself.
  JobStoreConnection open(std::span<const SocketAddress> addresses, JobStoreConnection::Options options,
                          JobStoreConnection::Time deadline) const;
  void connect(const LaunchPlan& plan, const std::function<void(const std::string&)>& say);
  /// The end of a text about a store that does not answer; empty unless listening has failed.
  std::string own_failure() const {
    return listening_failure_.empty() ? "" : "; this agent does not serve the meeting itself: " + listening_failure_;
  }

  StoreCredentials credentials_;
  std::string url_;
  std::vector<SocketAddress> listening_at_;  // addresses of the server
  std::string listening_failure_;            // why this agent cannot serve the store, which another one may serve
  std::unique_ptr<JobStoreServer> server_;
  std::optional<JobStoreConnection> connection_;
};

/// A descriptor that is readable if a signal that ends the run of `plan` is pending. The `SignalInbox` reads the
/// signal.
inline Descriptor ending_signals(const LaunchPlan& plan) {
  sigset_t ending;
  ::sigemptyset(&ending);
  for (const int number : {SIGINT, SIGTERM, SIGQUIT, SIGHUP}) ::sigaddset(&ending, number);
  for (const int number : plan.ending_signals) ::sigaddset(&ending, number);
  return Descriptor{::signalfd(-1, &ending, SFD_NONBLOCK | SFD_CLOEXEC)};
}

/// Writes a warning of the store to standard error. The store calls it in its thread, which must not wait for the
/// reader of the output: if the output has no room, there is no warning.
inline void write_warning(const std::string& text) {
  const std::string line = "ddpxx-run: " + text + '\n';
  pollfd output{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&output, 1, 0) <= 0) return;
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

/// True if an address of `host` belongs to this machine.
/// Errors  `peer` if the name does not resolve.
inline bool is_own_host(const std::string& host, JobStoreConnection::Time deadline, const StillTrying& still_trying) {
  const auto addresses = resolve(host, 0, deadline, still_trying);
  return std::ranges::any_of(addresses, [](const SocketAddress& address) {
    return static_cast<bool>(listen_at(address));  // the system lets a program listen at its own addresses only
  });
}

inline RunStore::RunStore(const LaunchPlan& plan, const std::string& run_id,
                          const std::function<void(const std::string&)>& say)
    : credentials_{environment("DDPXX_TOKEN").value_or(""), run_id} {
  if (plan.num_nodes > 1) {
    connect(plan, say);
    return;
  }
  credentials_.token = make_secret();  // a rank has the token of its round
  std::vector<Descriptor> listeners;
  listeners.push_back(listen_on_loopback());
  url_ = store_url("127.0.0.1", SocketAddress::of_socket(listeners[0].get()).port());
  server_ = std::make_unique<JobStoreServer>(std::move(listeners), credentials_, StoreLimits{}, write_warning);
}

inline void RunStore::serve(const LaunchPlan& plan, const std::string& host, std::uint16_t port,
                            JobStoreConnection::Time deadline, const StillTrying& still_trying) {
  const bool by_arrival = plan.node_numbers == NodeNumbers::by_arrival;
  const auto serves = [&] {
    return plan.serves_meeting ? *plan.serves_meeting : is_own_host(host, deadline, still_trying);
  };
  if (by_arrival ? !serves() : plan.node_rank != 0) return;
  std::vector<Descriptor> listeners;
  try {
    listeners = listen_for(host, port, true, deadline, still_trying);
  } catch (const Error& error) {
    if (!by_arrival || plan.serves_meeting || error.code() == Errc::stopped) throw;
    // If the port is in use, another agent of this machine serves the meeting. If another program has the port,
    // connecting to it fails.
    const bool in_use = std::string_view{error.what()}.starts_with("port in use");
    listening_failure_ = in_use ? "another agent of the run, or another program, uses the port" : error.what();
    return;
  }
  listening_failure_.clear();
  for (const auto& listener : listeners) listening_at_.push_back(SocketAddress::of_socket(listener.get()));
  server_ = std::make_unique<JobStoreServer>(std::move(listeners), credentials_,
                                             StoreLimits{.keep_alive = plan.keep_alive}, write_warning);
}

inline JobStoreConnection RunStore::open(std::span<const SocketAddress> addresses, JobStoreConnection::Options options,
                                         JobStoreConnection::Time deadline) const {
  try {
    return JobStoreConnection::open(addresses, url_, std::move(options), deadline);
  } catch (const Error& error) {
    if (listening_failure_.empty() || !std::string_view{error.what()}.starts_with("no answer")) throw;
    throw Error{Errc::peer, error.what() + own_failure()};
  }
}

inline void RunStore::connect(const LaunchPlan& plan, const std::function<void(const std::string&)>& say) {
  const auto deadline = JobStoreConnection::Clock::now() + plan.join_timeout;
  const auto interrupt = ending_signals(plan);
  const auto host = without_brackets(plan.master_address);
  const std::uint16_t port = plan.master_port.value();
  url_ = store_url(host, port);

  WaitingLine line;
  const auto still_trying = [&](const std::string& reason) {
    if (line.take())
      say("waiting for the agent of node 0 at " + url_ + ": " + reason + own_failure() + " (" +
          line.time_of(plan.join_timeout) + ')');
  };
  const auto while_unresolved = [&](const std::string& reason) {
    still_trying(reason);
    pollfd signal{interrupt.get(), POLLIN, 0};
    if (::poll(&signal, 1, 0) > 0) throw Error{Errc::stopped, "interrupted while waiting for a name to resolve"};
  };
  const auto try_to_serve = [&] {
    serve(plan, host, port, deadline, while_unresolved);
    if (server_ && credentials_.token.empty())
      say("DDPXX_TOKEN is not set: a program that can reach " + url_ +
          " and knows the run's id can take part; give all nodes the same secret");
  };
  try_to_serve();
  // Agents of one machine that start at the same moment may all find the port in use: the system may refuse each of
  // them because of another one, and it lends a free port to any socket that connects. While no server answers, this
  // agent tries to serve again.
  const auto serve_or_wait = [&](const std::string& reason) {
    if (!listening_failure_.empty()) try_to_serve();
    if (!server_) still_trying(reason);
  };
  const auto addresses = server_ ? listening_at_ : resolve(host, port, deadline, while_unresolved);
  const auto first = open(addresses,
                          {.credentials = credentials_,
                           .interrupt = interrupt.get(),
                           .still_trying = serve_or_wait,
                           .keep_alive = plan.keep_alive},
                          deadline);
  // From now on the poll loop of the agent reads signals; until it does, none is heard.
  static constexpr std::chrono::seconds kSecondConnection{10};
  connection_.emplace(first.another(std::min(deadline, JobStoreConnection::Clock::now() + kSecondConnection), -1));
}

}  // namespace ddpxx::detail
