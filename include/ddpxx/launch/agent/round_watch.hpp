// ddpxx/launch/agent/round_watch.hpp — what the agents tell each other during a round.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/agent/agents_store.hpp>
#include <ddpxx/launch/agent/store_wait.hpp>

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
  int signal = 0;  ///< The signal, if the kind is `signal`.
};

/// Watches one round, and tells the other agents. Reasons to stop come one after the other; the end of the round
/// overtakes them. If the store is gone, nothing is told; the next request that needs an answer says so.
class RoundWatch {
 public:
  RoundWatch(AgentsStore& store, int round) : store_{store}, round_{round} { wait_for_stop(); }

  /// Descriptor that is readable if an event may have come; -1 if none can come any more.
  int descriptor() const noexcept { return wait_ ? wait_->descriptor() : -1; }
  std::optional<RoundEvent> next_event();

  /// Whether another node has come.
  bool grows() const noexcept { return grows_; }
  /// Whether all ranks were told to end at once.
  bool ends() const noexcept { return ends_; }

  void tell_end() {
    if (std::exchange(ends_, true)) return;
    try {
      store_.claim(AgentsStore::key("end", round_), "a rank has failed");
    } catch (const Error&) {  // see above
    }
  }
  void tell_signal(int number) { ask_to_stop(store_, round_, kSignal + std::to_string(number)); }
  /// Asks the ranks of a round to stop, because another node has come.
  static void tell_arrival(AgentsStore& store, int round) { ask_to_stop(store, round, "a node has come"); }

 private:
  static constexpr const char* kSignal = "signal ";

  static void ask_to_stop(AgentsStore& store, int round, const std::string& why) {
    try {
      for (int n = 0; store.claim(AgentsStore::key("stop", round, n), why) != why;) ++n;
    } catch (const Error&) {  // see above
    }
  }
  void wait_for_stop() {
    wait_.emplace(store_.connection(), std::vector{AgentsStore::key("stop", round_, num_stops_)},
                  AgentsStore::key("end", round_));
  }

  AgentsStore& store_;
  int round_;
  int num_stops_ = 0;  // reasons to stop that were read
  bool grows_ = false;
  bool ends_ = false;
  std::optional<StoreWait> wait_;
};

inline std::optional<RoundEvent> RoundWatch::next_event() {
  if (!wait_ || !wait_->is_over()) return std::nullopt;
  try {
    if (wait_->interruption()) {
      wait_.reset();
      if (std::exchange(ends_, true)) return std::nullopt;  // this agent has told it
      return RoundEvent{RoundEvent::Kind::ends};
    }
    const auto why = store_.get(AgentsStore::key("stop", round_, num_stops_)).value_or("");
    ++num_stops_;
    wait_for_stop();
    if (const std::string signal = kSignal; why.starts_with(signal))
      return RoundEvent{RoundEvent::Kind::signal, std::atoi(why.c_str() + signal.size())};
    grows_ = true;
    return RoundEvent{RoundEvent::Kind::grows};
  } catch (const Error&) {
    wait_.reset();
    ends_ = true;
    return RoundEvent{RoundEvent::Kind::lost_leader};
  }
}

}  // namespace ddpxx::detail
