// ddpxx/launch/agent/agent_group.hpp — the agents of a run agree on its rounds, through the store that one of them
// serves. That agent leads: it alone decides whether and with which nodes the next round starts.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include <ddpxx/comm/job_store_connection.hpp>
#include <ddpxx/comm/roll_call.hpp>
#include <ddpxx/comm/secret.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/host_name.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/launch/agent/console.hpp>
#include <ddpxx/launch/agent/free_port.hpp>
#include <ddpxx/launch/agent/node_result.hpp>
#include <ddpxx/launch/agent/root_cause.hpp>
#include <ddpxx/launch/agent/round.hpp>
#include <ddpxx/launch/agent/run_rule.hpp>
#include <ddpxx/launch/agent/run_store.hpp>
#include <ddpxx/launch/agent/store_wait.hpp>
#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/torchrun_environment.hpp>

namespace ddpxx::detail {

/// What happens on other nodes during a round.
struct RoundEvent {
  enum class Kind {
    signal,      ///< A signal asked an agent to end the run.
    grows,       ///< Another node has come: the ranks are to stop and save.
    ends,        ///< Ranks have failed or an agent is lost: all ranks are to end at once.
    lost_leader  ///< The agent that serves the store has ended or cannot be reached.
  };
  Kind kind;
  int signal = 0;  ///< Of `Kind::signal`.
};

/// What an agent tells the others about its node when it comes.
struct NodeFacts {
  std::string host = {};
  int min_nodes = 1, num_nodes = 1, ranks_per_node = 1, max_restarts = 0;

  /// The facts as text. `mark` makes the texts of two agents with equal facts different.
  std::string text(const std::string& mark) const {
    return agent_text({{"host", host},
                       {"min_nodes", min_nodes},
                       {"num_nodes", num_nodes},
                       {"ranks_per_node", ranks_per_node},
                       {"max_restarts", max_restarts},
                       {"mark", mark}});
  }
  /// Errors  `peer` if this version does not understand the text.
  static NodeFacts parse(const std::string& text) {
    return read_agent_text(text, [](const nlohmann::json& value) {
      return NodeFacts{.host = value.at("host"),
                       .min_nodes = value.at("min_nodes"),
                       .num_nodes = value.at("num_nodes"),
                       .ranks_per_node = value.at("ranks_per_node"),
                       .max_restarts = value.at("max_restarts")};
    });
  }
  /// Why nodes with these facts cannot be in one run; empty if they can.
  std::string contradiction(int node, const NodeFacts& other, int other_node) const {
    const auto nodes = [](const NodeFacts& facts) {
      return (facts.min_nodes < facts.num_nodes ? std::to_string(facts.min_nodes) + ':' : "") +
             std::to_string(facts.num_nodes);
    };
    const auto name = "node " + std::to_string(node), other_name = "node " + std::to_string(other_node);
    if (nodes(*this) != nodes(other))
      return name + " believes in " + nodes(*this) + " nodes, " + other_name + " in " + nodes(other) +
             ": give all nodes the same --nnodes";
    if (ranks_per_node != other.ranks_per_node)
      return name + " starts " + std::to_string(ranks_per_node) + " ranks, " + other_name + " starts " +
             std::to_string(other.ranks_per_node) + ": give all nodes the same --nproc-per-node";
    if (max_restarts != other.max_restarts)
      return name + " has --max-restarts " + std::to_string(max_restarts) + ", " + other_name + " has " +
             std::to_string(other.max_restarts) + ": give all nodes the same";
    return {};
  }
};

/// The agents' part in a run. Keys of the agents' store, with their prefix `ddpxx/agents/`: `agentA` has the facts of
/// agent A, `lostA` is set when it ends; `planR` is round R, or the end of the run in its place; `stopR/N` asks the
/// ranks of round R to stop, for the Nth reason; `endR` ends them at once; `resultR/A` is how the round has ended on
/// the node of agent A.
class AgentGroup {
 public:
  /// Opens the store, as `RunStore` does, and comes to the other agents.
  AgentGroup(const LaunchPlan& plan, const std::string& run_id, Console& console);

  /// The number of this agent, which stays during the run.
  int agent() const noexcept { return agent_; }
  /// Whether the current round has other nodes.
  bool has_others() const noexcept { return round_.agents.size() > 1; }

  /// Tells how the last round has ended here (none: there was none yet), and waits for what follows.
  /// Ranks   Collective over the agents of the round.
  /// Errors  `peer` if agents do not come or disagree about the run, or the agent that serves the store has ended.
  Next next(const NodeResult* last);

  /// Writes the address and the credentials of the ranks' store into `launch`.
  void describe_to(Launch& launch) const {
    launch.store_host = StoreHost::ddpxx_run;
    launch.store = store_.address();
    launch.token = round_.token;
  }

  /// Descriptor that is readable if an event of the round may have come; -1 if none can come.
  int descriptor() const noexcept { return watch_ ? watch_->descriptor() : -1; }
  std::optional<RoundEvent> next_event();
  /// Ends the ranks of all nodes at once.
  void tell_end();
  /// Passes on a signal that asks the run to end.
  void tell_signal(int number) { ask_to_stop(round_.number, "signal " + std::to_string(number)); }
  /// The error of an agent that has lost the one which serves the store.
  Error leader_loss() const {
    return Error{Errc::peer, "the launcher of node 0, which serves the meeting at " + store_.url() +
                                 ", has ended or cannot be reached; its own message says more. Start all nodes again"};
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kRequestTime{30};  ///< For an answer of the store.

  /// An agent that has come, as the leader knows it.
  struct Member {
    NodeFacts facts;
    bool is_lost = false;
  };

  // Of all agents.
  JobStoreConnection& connection() { return *store_.connection(); }
  static Clock::time_point soon() { return Clock::now() + kRequestTime; }
  static std::string key(const std::string& name) { return "ddpxx/agents/" + name; }
  static std::string key(const std::string& name, int number) { return key(name + std::to_string(number)); }
  std::string result_key(int agent) const { return key("result", round_.number) + '/' + std::to_string(agent); }
  NodeFacts own_facts() const {
    return {host_name(), plan_.min_nodes, plan_.num_nodes, plan_.ranks_per_node, plan_.max_restarts};
  }
  /// The value of a key; none if it is not set.
  std::optional<std::string> get_now(const std::string& name) {
    const std::vector names{name};
    if (!connection().check(names, soon())) return std::nullopt;
    return connection().multi_get(names, soon()).front();
  }
  void come();
  void leave_will(std::vector<std::string> more);
  void ask_to_stop(int round, const std::string& why);
  void begin(const Round& round);
  void watch();
  /// Waits until `wait` is over or `until`; passes signals on to the other agents, if `passes_on`. Returns false at
  /// `until`, or if a signal asks this agent to end and it does not pass signals on, or to end at once.
  bool wait_for(StoreWait& wait, Clock::time_point until, bool passes_on);
  RunEnd end_by_request() const {
    return {.code = 128 + console_.request()->signal, .asked = console_.request()->signal};
  }

  // Of the agent that leads.
  Next lead(const NodeResult* last);
  std::optional<RunEnd> gather();
  std::vector<std::string> awaited(int count) const;
  void note_arrivals();
  void note_losses();
  std::vector<int> living() const;
  std::vector<NodeResult> collect(const NodeResult& own);
  bool pause(std::chrono::milliseconds time);
  Round start(std::string because);
  RunEnd finish(RunEnd end);

  // Of the others.
  Next follow(const NodeResult* last);
  Next wait_for_plan(int number, Clock::time_point until, const std::string& reason);

  const LaunchPlan& plan_;
  Console& console_;
  RunStore store_;
  int agent_ = 0;
  Round round_{.number = -1, .agents = {}};
  std::optional<StoreWait> watch_;
  int num_stops_ = 0;                             // requests to stop that were read in this round
  bool grows_ = false;                            // one of them was a node that has come
  bool ends_ = false;                             // the ranks of this round were told to end at once
  std::optional<Clock::time_point> tell_end_at_;  // when to tell the other nodes of a failure
  RunRule rule_{plan_};
  std::map<int, Member> members_;  // that have come, by their numbers
};

inline AgentGroup::AgentGroup(const LaunchPlan& plan, const std::string& run_id, Console& console)
    : plan_{plan}, console_{console}, store_{plan, run_id, [&console](const std::string& line) {
                                               console.say(line);
                                               console.output().write_some();
                                             }} {
  if (store_.connection()) come();
}

/// Takes a number: that of the node, or the first that no agent has had. The agent that leads has number 0.
inline void AgentGroup::come() {
  const bool by_arrival = plan_.node_numbers == NodeNumbers::by_arrival;
  const auto facts = own_facts().text(make_secret());
  agent_ = by_arrival ? (store_.serves() ? 0 : 1) : plan_.node_rank;
  while (connection().compare_set(key("agent", agent_), "", facts, soon()) != facts) {
    if (!by_arrival)
      throw Error{Errc::peer, "two processes came to " + store_.url() + " as node " + std::to_string(agent_) +
                                  ": each needs a number of its own"};
    ++agent_;
  }
  if (!store_.serves()) leave_will({key("gone")});
}

/// Asks the store to set keys when this agent ends.
inline void AgentGroup::leave_will(std::vector<std::string> more) {
  more.push_back(key("lost", agent_));
  more.push_back(key("read", agent_));
  connection().leave_will(more, "lost " + std::to_string(agent_), soon());
}

inline Next AgentGroup::next(const NodeResult* last) {
  // A failure that may have its cause on another node is told when the time to find that cause is over.
  if (last && !last->asked && !std::ranges::all_of(last->exits, is_well)) tell_end_at_ = Clock::now() + kPeerGrace;
  try {
    return store_.serves() ? lead(last) : follow(last);
  } catch (const Error& error) {
    if (store_.serves()) {
      if (error.code() == Errc::peer && store_.connection())
        finish({.code = static_cast<int>(Errc::peer), .failure = error.what()});
      throw;
    }
    try {
      get_now(key("round"));
    } catch (const Error&) {
      throw leader_loss();
    }
    throw;
  }
}

inline void AgentGroup::begin(const Round& round) {
  round_ = round;
  num_stops_ = 0;
  grows_ = ends_ = false;
  tell_end_at_.reset();
  if (!store_.connection()) return;
  if (!store_.serves()) leave_will({key("end", round.number), result_key(agent_)});
  watch();
  if (console_.request()) tell_signal(console_.request()->signal);
}

inline void AgentGroup::watch() {
  watch_.emplace(connection(), std::vector{key("stop", round_.number) + '/' + std::to_string(num_stops_)},
                 key("end", round_.number));
}

inline std::optional<RoundEvent> AgentGroup::next_event() {
  if (!watch_ || !watch_->is_over()) return std::nullopt;
  try {
    const bool is_end = watch_->interruption().has_value();
    if (is_end) {
      watch_.reset();
      ends_ = true;
      return RoundEvent{RoundEvent::Kind::ends};
    }
    const auto why = get_now(key("stop", round_.number) + '/' + std::to_string(num_stops_)).value_or("");
    ++num_stops_;
    watch();
    if (why.starts_with("signal ")) return RoundEvent{RoundEvent::Kind::signal, std::atoi(why.c_str() + 7)};
    grows_ = true;
    return RoundEvent{RoundEvent::Kind::grows};
  } catch (const Error&) {
    watch_.reset();
    ends_ = true;  // nobody can be told
    return RoundEvent{RoundEvent::Kind::lost_leader};
  }
}

inline void AgentGroup::tell_end() {
  if (!store_.connection() || std::exchange(ends_, true)) return;
  try {
    connection().compare_set(key("end", round_.number), "", "failed " + std::to_string(agent_), soon());
  } catch (const Error&) {  // the store is gone; the next call says so
  }
}

inline void AgentGroup::ask_to_stop(int round, const std::string& why) {
  if (!store_.connection()) return;
  try {
    for (int n = 0;; ++n)
      if (connection().compare_set(key("stop", round) + '/' + std::to_string(n), "", why, soon()) == why) return;
  } catch (const Error&) {  // the store is gone; the next call says so
  }
}

inline bool AgentGroup::wait_for(StoreWait& wait, Clock::time_point until, bool passes_on) {
  while (!wait.is_over()) {
    if (console_.is_urgent()) return false;
    const auto before = console_.request();
    console_.wait({wait.descriptor(), descriptor()}, std::min(until, tell_end_at_.value_or(until)));
    if (tell_end_at_ && Clock::now() >= *tell_end_at_) {
      tell_end_at_.reset();
      tell_end();
    }
    if (!before && console_.request()) {
      if (!passes_on) return false;
      tell_signal(console_.request()->signal);
    }
    // While the ranks of other nodes still run, a signal there asks this agent to end, too.
    for (auto event = next_event(); event; event = next_event())
      if (event->kind == RoundEvent::Kind::signal) console_.note_request(event->signal);
    if (Clock::now() >= until || (ends_ && store_.serves())) return wait.is_over();
  }
  return true;
}

inline Next AgentGroup::lead(const NodeResult* last) {
  if (!last) {
    if (auto end = gather()) return finish(std::move(*end));
    return start({});
  }
  const auto results = collect(*last);
  if (console_.is_urgent()) return finish(end_by_request());
  const auto signal = console_.request() ? std::optional{console_.request()->signal} : std::nullopt;
  auto step = rule_.after(results, signal, grows_);
  if (auto* end = std::get_if<RunEnd>(&step)) return finish(std::move(*end));
  const auto& restart = std::get<Restart>(step);
  console_.say(restart.because);
  if (!pause(restart.pause)) {
    console_.say("ended by " + signal_name(console_.request()->signal) + " before the restart");
    return finish(end_by_request());
  }
  note_arrivals();
  note_losses();
  if (static_cast<int>(living().size()) < plan_.min_nodes)
    return finish({.code = static_cast<int>(Errc::peer),
                   .failure = "a node was lost before the restart, and --nnodes asks for at least " +
                              std::to_string(plan_.min_nodes)});
  return start(restart.because);
}

/// Waits before a restart; false if a signal asks an agent to end the run meanwhile.
inline bool AgentGroup::pause(std::chrono::milliseconds time) {
  for (const auto until = Clock::now() + time; !console_.request();) {
    if (Clock::now() >= until) return true;
    console_.wait({descriptor()}, until);
    for (auto event = next_event(); event; event = next_event())
      if (event->kind == RoundEvent::Kind::signal) console_.note_request(event->signal);
  }
  return false;
}

/// The keys of the next agents that may come, up to `count`.
inline std::vector<std::string> AgentGroup::awaited(int count) const {
  std::vector<std::string> keys;
  for (int number = 0; static_cast<int>(keys.size()) < count; ++number)
    if (!members_.contains(number)) keys.push_back(key("agent", number));
  return keys;
}

/// Reads the facts of the agents that have come since the last call. During the run an agent with other facts is
/// refused; before the first round it ends the run, since it is not known which one is right.
inline void AgentGroup::note_arrivals() {
  if (!store_.connection()) return;
  const bool by_arrival = plan_.node_numbers == NodeNumbers::by_arrival;
  for (int number = 0; by_arrival || number < plan_.num_nodes; ++number) {
    if (members_.contains(number)) continue;
    const auto text = get_now(key("agent", number));
    if (!text && by_arrival) return;  // numbers are given without gaps
    if (!text) continue;
    Member& member = members_[number] = {.facts = NodeFacts::parse(*text)};
    const auto contradiction = member.facts.contradiction(number, own_facts(), agent_);
    if (contradiction.empty()) continue;
    if (round_.number < 0) throw Error{Errc::peer, contradiction};
    connection().set(key("refused", number), contradiction, soon());
    member.is_lost = true;
  }
}

inline void AgentGroup::note_losses() {
  for (auto& [number, member] : members_)
    if (!member.is_lost) member.is_lost = get_now(key("lost", number)).has_value();
}

inline std::vector<int> AgentGroup::living() const {
  if (plan_.num_nodes == 1) return {0};
  std::vector<int> agents;
  for (const auto& [number, member] : members_)
    if (!member.is_lost) agents.push_back(number);
  return agents;
}

/// Waits for the agents of the first round: for all, but no longer than the last call once there are enough. Returns
/// the end of the run if a signal asks for it.
inline std::optional<RunEnd> AgentGroup::gather() {
  if (!store_.connection()) return std::nullopt;
  const bool by_arrival = plan_.node_numbers == NodeNumbers::by_arrival;
  const auto deadline = Clock::now() + plan_.join_timeout;
  std::optional<Clock::time_point> last_call;
  WaitingLine line;
  while (true) {
    connection().remove(key("gone"), soon());  // before the look at the agents: one that ends later sets it again
    note_arrivals();
    note_losses();
    const int count = static_cast<int>(living().size());
    if (!by_arrival)
      for (const auto& [node, member] : members_)
        if (member.is_lost)
          throw Error{Errc::peer, "node " + std::to_string(node) + " came to " + store_.url() +
                                      " and ended before all had come; its own message says more"};
    const auto now = Clock::now();
    if (count < plan_.min_nodes)
      last_call.reset();
    else if (!last_call)
      last_call = now + plan_.last_call;
    if (count >= plan_.num_nodes || (last_call && now >= *last_call)) return std::nullopt;

    const auto keys = awaited((last_call ? plan_.num_nodes : plan_.min_nodes) - count);
    std::vector<int> missing;
    if (by_arrival)
      for (int node = count; node < plan_.num_nodes; ++node) missing.push_back(node);
    else
      for (const auto& name : keys) missing.push_back(std::atoi(name.c_str() + key("agent").size()));
    if (!last_call && now >= deadline) {
      missing.resize(std::min(missing.size(), static_cast<std::size_t>(plan_.min_nodes - count)));
      throw Error{Errc::peer, "node " + number_list(missing) + " never came to " + store_.url() + " within " +
                                  std::to_string(plan_.join_timeout.count() / 1000) + " s"};
    }
    if (line.take())
      console_.say("waiting for node " + number_list(missing) + " to come to " + store_.url() + " (" +
                   line.time_of(last_call ? plan_.last_call : plan_.join_timeout) + ')');
    StoreWait wait{connection(), keys, key("gone")};
    if (!wait_for(wait, std::min(line.due(), last_call.value_or(deadline)), /*passes_on=*/false) && console_.request())
      return end_by_request();
  }
}

/// Makes the store of the next round and tells the other agents.
inline Round AgentGroup::start(std::string because) {
  Round round{
      .number = round_.number + 1, .restart = rule_.restart(), .agents = living(), .because = std::move(because)};
  if (round.agents.size() > static_cast<std::size_t>(plan_.num_nodes))
    round.agents.resize(static_cast<std::size_t>(plan_.num_nodes));
  round.token = make_secret();
  if (!store_.connection()) {
    if (auto given = environment("DDPXX_TOKEN"); given && !given->empty()) round.token = *given;
  } else {
    // --master-port is the port of the store, so rank 0 of a Python program needs another one for its own store.
    const std::uint16_t port = plan_.master_port.value();
    round.master_port = free_port(port < 65535 ? static_cast<std::uint16_t>(port + 1) : std::uint16_t{0});
  }
  store_.open_round(round.token);
  watch_.reset();
  if (store_.connection())
    connection().multi_set(std::vector{key("plan", round.number), key("round")},
                           std::vector{to_text(round), std::to_string(round.number)}, soon());
  begin(round);
  return round;
}

/// Waits for the results of all nodes. An agent that has not answered long after its ranks were told to end counts as
/// lost.
inline std::vector<NodeResult> AgentGroup::collect(const NodeResult& own) {
  constexpr std::chrono::seconds kBeyondGrace{20};
  std::vector<NodeResult> results;
  if (!has_others()) return {own};
  std::vector<std::string> keys;
  for (const int agent : round_.agents)
    if (agent != agent_) keys.push_back(result_key(agent));
  StoreWait wait{connection(), keys};
  const auto forever = Clock::now() + std::chrono::hours{100'000};
  if (!wait_for(wait, ends_ ? Clock::now() : forever, /*passes_on=*/true) && !console_.is_urgent()) {
    const auto until = Clock::now() + plan_.grace + kBeyondGrace;
    while (!wait.is_over() && Clock::now() < until && !console_.is_urgent()) console_.wait({wait.descriptor()}, until);
  }
  for (const int agent : round_.agents) {
    if (agent == agent_) {
      results.push_back(own);
      continue;
    }
    const auto text = get_now(result_key(agent));
    if (text && !text->starts_with("lost ")) {
      results.push_back(parse_node_result(*text));
      continue;
    }
    Member& member = members_.at(agent);
    member.is_lost = true;
    results.push_back({.host = member.facts.host, .is_lost = true});
  }
  return results;
}

/// Tells the other agents the end of the run, and waits until they have read it, since the store ends with this agent.
inline RunEnd AgentGroup::finish(RunEnd end) {
  constexpr std::chrono::seconds kPatience{10};
  watch_.reset();
  if (!store_.connection()) return end;
  if (round_.number >= 0) note_arrivals();
  note_losses();
  connection().set(key("plan", round_.number + 1), to_text(end), soon());
  std::vector<std::string> readers;
  for (const int agent : living())
    if (agent != agent_) readers.push_back(key("read", agent));
  if (readers.empty()) return end;
  StoreWait wait{connection(), readers};
  for (const auto until = Clock::now() + kPatience; !wait.is_over() && Clock::now() < until && !console_.is_urgent();)
    console_.wait({wait.descriptor()}, until);
  return end;
}

inline Next AgentGroup::follow(const NodeResult* last) {
  const auto forever = Clock::now() + std::chrono::hours{100'000};
  if (last) {
    connection().set(result_key(agent_), to_text(*last), soon());
    auto next = wait_for_plan(round_.number + 1, forever, {});
    if (const auto* round = std::get_if<Round>(&next)) {
      if (!round->node_of(agent_))
        throw Error{Errc::peer, "the other nodes go on without this one, which did not answer in time"};
      console_.say(round->because);
      begin(*round);
    }
    return next;
  }
  // The leader's time for the meeting may have begun later than that of this agent.
  const auto until = Clock::now() + plan_.join_timeout + plan_.last_call + kRequestTime;
  const bool is_fixed = plan_.min_nodes == plan_.num_nodes;
  int number = std::atoi(get_now(key("round")).value_or("0").c_str());
  for (std::string reason;; ++number) {
    auto next = wait_for_plan(number, until, reason);
    const auto* round = std::get_if<Round>(&next);
    if (!round) return next;
    if (round->node_of(agent_)) {
      begin(*round);
      return next;
    }
    const bool is_full = static_cast<int>(round->agents.size()) == plan_.num_nodes;
    if (is_full && is_fixed)
      throw Error{Errc::peer,
                  "all " + std::to_string(plan_.num_nodes) + " nodes of the run have come to " + store_.url() +
                      " before this one: start it on --nnodes machines, or give this run another --rdzv-id"};
    reason = is_full ? "the run has all of its " + std::to_string(plan_.num_nodes) + " nodes; waiting until one is lost"
                     : "waiting until the ranks of the run have stopped";
    console_.say(reason);
    if (!is_full) ask_to_stop(number, "a node has come");
  }
}

inline Next AgentGroup::wait_for_plan(int number, Clock::time_point until, const std::string& reason) {
  StoreWait wait{connection(), {key("plan", number)}, key("refused", agent_)};
  const bool is_member = round_.number >= 0;
  WaitingLine line;
  while (!wait_for(wait, std::min(until, line.due()), is_member)) {
    if (console_.is_urgent() || (console_.request() && !is_member)) return end_by_request();
    if (Clock::now() >= until)
      throw Error{Errc::peer, reason.empty() ? "the agent of node 0 at " + store_.url() + " does not start the run"
                                             : reason + " took too long (--rdzv-conf join_timeout)"};
    if (line.take() && !reason.empty()) console_.say(reason);
  }
  if (const auto& refusal = wait.interruption()) throw Error{Errc::peer, *refusal};
  auto next = parse_next(get_now(key("plan", number)).value_or(""));
  if (std::holds_alternative<RunEnd>(next)) connection().set(key("read", agent_), "", soon());
  return next;
}

}  // namespace ddpxx::detail
