// ddpxx/launch/agent/round_watch.hpp — what the agents tell each other during a round.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/agent/agents_store.hpp>
#include <ddpxx/launch/agent/node_result.hpp>
#include <ddpxx/launch/agent/root_cause.hpp>
#include <ddpxx/launch/agent/store_wait.hpp>

namespace ddpxx::detail {

/// What happens on other nodes during a round.
struct RoundEvent {
  enum class Kind {
    signal,      ///< A signal asked an agent to end the run.
    grows,       ///< Another node has come: the ranks are to stop and save.
    ends,        ///< Ranks have failed or an agent is lost: all ranks are to end at once.
    killed,      ///< An agent has heard a second SIGINT: all ranks are to be killed.
    lost_leader  ///< The agent that serves the store has ended or cannot be reached.
  };
  Kind kind;
  int signal = 0;  ///< The signal, if the kind is `signal`.
};

/// Watches one round, and tells the other agents. Reasons to stop come one after the other; the end of the round
/// overtakes them, and after it only a kill may come. If the store is gone, nothing is told; the next request that
/// needs an answer says so.
class RoundWatch {
 public:
  /// `members` are the agents whose loss ends the round. The leading agent watches all agents of the round, and the
  /// other agents watch none.
  RoundWatch(AgentsStore& store, int round, std::vector<int> members)
      : store_{store}, round_{round}, members_{std::move(members)} {
    wait_for_stop();
    if (!members_.empty()) note_losses();
  }

  /// Descriptors that are readable if an event may have come; -1: none.
  std::array<int, 2> descriptors() const noexcept {
    return {wait_ ? wait_->descriptor() : -1, losses_ ? losses_->descriptor() : -1};
  }
  std::optional<RoundEvent> next_event();

  /// Whether another node has come.
  bool grows() const noexcept { return grows_; }
  /// Whether all ranks were told to end at once.
  bool ends() const noexcept { return ends_; }
  /// Whether all ranks were told to be killed.
  bool was_killed() const noexcept { return was_killed_; }

  void tell_end() { tell_end("a rank has failed"); }
  void tell_kill() {
    if (std::exchange(was_killed_, true)) return;
    tell_end(kKill);
    tell("kill", kKill);  // for agents that know of the end already
  }
  void tell_signal(int number) { ask_to_stop(store_, round_, kSignal + std::to_string(number)); }
  /// Asks the ranks of a round to stop, because another node has come.
  static void tell_arrival(AgentsStore& store, int round) { ask_to_stop(store, round, "a node has come"); }
  /// The first signal that an agent has told during a round or after it; none if there is none.
  static std::optional<int> told_signal(AgentsStore& store, int round) {
    for (int n = 0;; ++n) {
      const auto why = store.get(AgentsStore::key("stop", round, n));
      if (!why) return std::nullopt;
      if (const auto signal = signal_in(*why)) return signal;
    }
  }

 private:
  static constexpr const char* kSignal = "signal ";
  static constexpr const char* kKill = "all ranks are killed";

  void tell_end(const std::string& why) {
    if (!std::exchange(ends_, true)) tell("end", why);
  }
  void tell(const std::string& name, const std::string& why) {
    try {
      store_.set_if_missing(AgentsStore::key(name, round_), why);
    } catch (const Error&) {  // see above
    }
  }
  /// The signal that a reason to stop names; none if it is another reason.
  static std::optional<int> signal_in(const std::string& why) {
    const std::string prefix = kSignal;
    return why.starts_with(prefix) ? std::optional{std::atoi(why.c_str() + prefix.size())} : std::nullopt;
  }
  static void ask_to_stop(AgentsStore& store, int round, const std::string& why) {
    try {
      for (int n = 0; store.set_if_missing(AgentsStore::key("stop", round, n), why) != why;) ++n;
    } catch (const Error&) {  // see above
    }
  }
  void wait_for_stop() {
    wait_.emplace(store_.connection(), std::vector{AgentsStore::key("stop", round_, num_stops_)},
                  AgentsStore::key("end", round_));
  }
  void wait_for_kill() { wait_.emplace(store_.connection(), std::vector{AgentsStore::key("kill", round_)}); }

  void note_losses();
  std::optional<RoundEvent> after_end();
  std::optional<RoundEvent> killed();

  AgentsStore& store_;
  int round_;
  std::vector<int> members_;  // those that are not known to be lost
  int num_stops_ = 0;         // reasons to stop that were read
  bool grows_ = false;
  bool ends_ = false;
  bool was_killed_ = false;
  bool waits_for_kill_ = false;  // the end of the round has come
  std::optional<StoreWait> wait_;
  std::optional<StoreWait> losses_;  // waits until any agent is lost
};

/// Ends the round if a member is lost. All agents, this one too, hear of that by the key. The round goes on if the
/// agent had told its result, and its ranks had ended well or all ranks were asked to stop: the other ranks may save.
inline void RoundWatch::note_losses() {
  store_.remove(AgentsStore::key("gone"));  // before the look at the members: one that ends later sets it again
  std::erase_if(members_, [&](int agent) {
    if (!store_.get(AgentsStore::key("lost", agent))) return false;
    const auto result = store_.set_if_missing(AgentsStore::key("result", round_, agent), AgentsStore::kLost);
    const bool go_on = result != AgentsStore::kLost && (store_.get(AgentsStore::key("stop", round_, 0)) ||
                                                        std::ranges::all_of(parse_node_result(result).exits, is_well));
    if (!go_on) tell("end", "a node is lost");
    return true;
  });
  losses_.emplace(store_.connection(), std::vector{AgentsStore::key("gone")});
}

inline std::optional<RoundEvent> RoundWatch::next_event() {
  try {
    if (losses_ && losses_->is_over()) note_losses();
    if (!wait_ || !wait_->is_over()) return std::nullopt;
    if (waits_for_kill_) return after_end();
    if (const auto why = wait_->interruption()) {
      if (*why == kKill) return killed();
      waits_for_kill_ = true;
      wait_for_kill();
      if (std::exchange(ends_, true)) return std::nullopt;  // this agent has told it
      return RoundEvent{RoundEvent::Kind::ends};
    }
    const auto why = store_.get(AgentsStore::key("stop", round_, num_stops_)).value_or("");
    ++num_stops_;
    wait_for_stop();
    if (const auto signal = signal_in(why)) return RoundEvent{RoundEvent::Kind::signal, *signal};
    grows_ = true;
    return RoundEvent{RoundEvent::Kind::grows};
  } catch (const Error&) {
    wait_.reset();
    losses_.reset();
    ends_ = true;
    return RoundEvent{RoundEvent::Kind::lost_leader};
  }
}

/// The ranks are ending: the store may be gone, which is no event any more.
inline std::optional<RoundEvent> RoundWatch::after_end() {
  try {
    wait_->interruption();
  } catch (const Error&) {
    wait_.reset();
    return std::nullopt;
  }
  return killed();
}

inline std::optional<RoundEvent> RoundWatch::killed() {
  wait_.reset();
  ends_ = true;
  if (std::exchange(was_killed_, true)) return std::nullopt;  // this agent has told it
  return RoundEvent{RoundEvent::Kind::killed};
}

}  // namespace ddpxx::detail
