// ddpxx/launch/agent.hpp — starts the ranks of one machine, forwards their output and signals to them, and ends all
// of them when one fails. It is one poll loop, without torch; the store where ranks meet has a thread of its own.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <iomanip>
#include <optional>
#include <poll.h>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/host_name.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/stop_signals.hpp>
#include <ddpxx/launch/agent/collect_orphans.hpp>
#include <ddpxx/launch/agent/failure_report.hpp>
#include <ddpxx/launch/agent/free_port.hpp>
#include <ddpxx/launch/agent/guardian.hpp>
#include <ddpxx/launch/agent/oom_kills.hpp>
#include <ddpxx/launch/agent/output_queue.hpp>
#include <ddpxx/launch/agent/rank_process.hpp>
#include <ddpxx/launch/agent/restart_rule.hpp>
#include <ddpxx/launch/agent/root_cause.hpp>
#include <ddpxx/launch/agent/run_store.hpp>
#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/plan/run_id.hpp>
#include <ddpxx/launch/process_table.hpp>
#include <ddpxx/launch/signal_inbox.hpp>

namespace ddpxx {

/// The time that the other ranks have to end by themselves after a failure which may be a consequence of another one,
/// so that the cause can be found among them. It is longer than `kCollateralWindow`, so that a late cause is seen.
/// After a failure that explains itself the other ranks are ended at once.
inline constexpr std::chrono::milliseconds kPeerGrace{2'000};
static_assert(kPeerGrace > detail::kCollateralWindow);

/// How often the agent checks for the end of processes behind a rank's first process, of which no signal informs it.
inline constexpr std::chrono::milliseconds kPollInterval{100};

namespace detail {

/// True if a program may redraw a line on this output: it is a terminal that can move the cursor.
inline bool draws_on(int descriptor) {
  const auto kind = environment("TERM");
  return ::isatty(descriptor) == 1 && kind && *kind != "dumb";
}

}  // namespace detail

/// Runs a plan on this machine. If the agent's standard output is a terminal, rank 0 writes to it directly, so that it
/// can redraw its line of progress; the lines of other ranks are written between.
class Agent {
 public:
  explicit Agent(LaunchPlan plan)
      : plan_{std::move(plan)}, program_{find_program(plan_.program)}, has_terminal_{detail::draws_on(STDOUT_FILENO)} {
    if (!has_terminal_) return;
    output_.clear_drawn_line_on(STDOUT_FILENO);
    if (detail::draws_on(STDERR_FILENO)) output_.clear_drawn_line_on(STDERR_FILENO);
  }

  /// Starts the ranks, again after a failure while restarts remain, and waits for their end. Returns the exit code of
  /// the agent.
  /// Errors  `config` if the program cannot be run, `storage` if log files cannot be made, `peer` if the system cannot
  ///         start a process or the agents of several machines do not meet; no rank runs on.
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  /// Makes the store of the run; false if a signal asked the agent to end while it waited for agents of other machines.
  bool open_store();
  std::vector<detail::Exit> attempt(int restart);
  void wait(std::vector<detail::RankProcess>& ranks);
  void poll_once(std::vector<detail::RankProcess>& ranks);
  void on_signal(int number, std::vector<detail::RankProcess>& ranks);
  void notice_ends(std::vector<detail::RankProcess>& ranks);
  void keep_deadlines(std::vector<detail::RankProcess>& ranks);
  std::optional<int> request(const std::vector<detail::Exit>& exits) const;
  bool pause(std::chrono::milliseconds time);
  void report(const std::vector<detail::Exit>& exits, std::size_t cause, const std::string& refusal);
  void deliver_output();
  void say(std::string_view text) { output_.push(STDERR_FILENO, "ddpxx-run: ", text); }

  LaunchPlan plan_;
  std::string program_;
  detail::Guardian guardian_;
  bool has_terminal_;
  SignalInbox inbox_;
  detail::OutputQueue output_;
  std::string run_id_;
  std::optional<detail::RunStore> store_;       // the store where the ranks of an attempt meet
  std::filesystem::path folder_;                // the log folder of all attempts; empty for none
  std::string first_failure_;                   // the failure of attempt 0; empty for none
  std::optional<int> request_;                  // the signal that asked the agent to end
  Clock::time_point request_time_;              // when the first such signal came
  std::optional<int> vote_;                     // the last SIGUSR1 or SIGUSR2, by which ranks may stop
  std::optional<Clock::time_point> terminate_;  // when to send SIGTERM
  std::optional<Clock::time_point> kill_;       // when to send SIGKILL
};

namespace detail {

/// The id of the run: on one machine a new name, so that the log folder is new; on several machines a name that they
/// agree on.
inline std::string make_run_id(const LaunchPlan& plan) {
  if (plan.run_id) return *plan.run_id;
  if (plan.num_nodes > 1) {
    const auto job = environment("SLURM_JOB_ID");   // equal on all machines of the job
    return job && is_run_id(*job) ? *job : "none";  // "none" as torchrun
  }
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  return (std::ostringstream{} << std::put_time(&parts, "%Y%m%d-%H%M%S-") << ::getpid()).str();
}

}  // namespace detail

inline bool Agent::open_store() {
  try {
    store_.emplace(plan_, run_id_, [this](const std::string& line) {
      say(line);
      output_.write_some();
    });
    return true;
  } catch (const Error& error) {
    if (error.code() != Errc::stopped) throw;
    while (!request_) {
      const auto number = inbox_.next().value_or(SIGTERM);
      if (number == SIGINT || number == SIGTERM || number == SIGQUIT || number == SIGHUP) request_ = number;
    }
    return false;
  }
}

inline int Agent::run() {
  run_id_ = detail::make_run_id(plan_);
  if (!open_store()) {
    say("ended by " + signal_name(*request_));
    deliver_output();
    return 128 + *request_;
  }
  plan_.node_rank = store_->node_rank();
  if (!plan_.log_dir.empty()) {
    const std::string node = plan_.num_nodes > 1 ? "_node" + std::to_string(plan_.node_rank) : "";
    folder_ = std::filesystem::absolute(plan_.log_dir) / (run_id_ + node);
    say("the ranks write to " + harmless(folder_.string()));
  }
  detail::RestartRule rule;
  for (int restart = 0;; ++restart) {
    const std::vector<detail::Exit> exits = attempt(restart);
    const auto asked = request(exits);
    const auto cause = detail::root_cause(exits, asked);
    std::string refusal;
    if (cause && !asked && restart < plan_.max_restarts) {
      rule.note(exits, *cause);
      refusal = rule.refusal();
      if (refusal.empty()) {
        const auto& hint = exits[*cause].hint;
        const auto failure = "rank " + std::to_string(exits[*cause].rank) + ": " + detail::describe(exits[*cause]) +
                             (hint.empty() ? "" : " (" + hint + ')');
        if (first_failure_.empty()) first_failure_ = failure;
        say(failure + "; restart " + std::to_string(restart + 1) + " of " + std::to_string(plan_.max_restarts));
        if (pause(rule.pause())) continue;
        say("ended by " + signal_name(*request_) + " before the restart");
        deliver_output();
        return 128 + *request_;
      }
    }
    if (cause) {
      report(exits, *cause, refusal);
      if (!first_failure_.empty())
        say("the first failure of this run: attempt 0, " + first_failure_ + "; the last one is that of attempt " +
            std::to_string(restart));
    } else if (asked && detail::exit_code(exits, asked) > 128) {
      say("ended by " + signal_name(*asked));
    }
    deliver_output();
    return detail::exit_code(exits, asked);
  }
}

/// Waits before a restart; false if a signal asks the agent to end meanwhile.
inline bool Agent::pause(std::chrono::milliseconds time) {
  for (const auto until = Clock::now() + time; !request_;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return true;
    pollfd waits[] = {{inbox_.descriptor(), POLLIN, 0}, {output_.waiting_for(), POLLOUT, 0}};
    ::poll(waits, 2, static_cast<int>(left));
    if (waits[1].revents != 0) output_.write_some();
    while (const auto number = inbox_.next())
      if (number != SIGCHLD) request_ = number;
  }
  return false;
}

/// The signal by which the run was asked to end. SIGUSR1 and SIGUSR2 count only if a rank has ended because of them,
/// since many programs use them for something else.
inline std::optional<int> Agent::request(const std::vector<detail::Exit>& exits) const {
  if (request_ || !vote_) return request_;
  const bool have_followed = std::any_of(exits.begin(), exits.end(), [&](const detail::Exit& exit) {
    return exit.code == static_cast<int>(Errc::stopped) || detail::is_end_by(*vote_, exit.code);
  });
  return have_followed ? vote_ : std::nullopt;
}

inline void Agent::report(const std::vector<detail::Exit>& exits, std::size_t cause, const std::string& refusal) {
  if (folder_.empty() && detail::only_repeats(exits, cause))
    return say(detail::repeat_line(exits[cause], plan_.max_restarts > 0));
  std::string text = detail::failure_report(exits, cause, plan_.program, host_name());
  text.pop_back();  // the queue adds a newline to each line
  output_.push(STDERR_FILENO, "", text);
  if (const auto silent = detail::silent_rank(exits); silent && detail::lost_its_peers(exits[cause]))
    say("rank " + std::to_string(exits[*silent].rank) +
        " was still running when all other ranks had lost a peer; it may be slow, or the cause");
  if (!refusal.empty()) say(refusal);
  if (plan_.num_nodes > 1 && std::all_of(exits.begin(), exits.end(), detail::lost_its_peers))
    say("all ranks of this machine have lost a peer: the cause is probably on another machine");
}

inline std::vector<detail::Exit> Agent::attempt(int restart) {
  terminate_.reset();
  kill_.reset();
  vote_.reset();
  // Each attempt has a new store, without the keys of the last one. Only runs on one machine are restarted.
  if (restart > 0) open_store();
  const auto kills_before = detail::oom_kills();
  const detail::RankCommon common{
      .plan = plan_,
      .guardian = guardian_,
      .path = program_,
      .inherited = own_environment(),
      .folder = folder_.empty() ? folder_ : folder_ / ("attempt_" + std::to_string(restart)),
      .first_rank_has_terminal = has_terminal_};
  // MASTER_PORT is for Python programs, whose rank 0 serves a store; ranks of ddpxx use the agent's store.
  const auto agreed = store_->master_port() ? store_->master_port() : plan_.master_port;
  const std::uint16_t port = agreed ? *agreed : detail::free_port();
  std::vector<detail::RankProcess> ranks;
  ranks.reserve(static_cast<std::size_t>(plan_.ranks_per_node));
  for (int i = 0; i < plan_.ranks_per_node; ++i) {
    Launch launch{
        .rank_info = rank_info_of(plan_, i, restart), .address = plan_.master_address, .port = port, .run_id = run_id_};
    store_->describe_to(launch);
    ranks.emplace_back(common, launch);
  }
  wait(ranks);
  std::vector<detail::Exit> exits;
  for (auto& rank : ranks) {
    rank.finish(output_);
    exits.push_back(*rank.exit());
  }
  for (auto& exit : exits)
    if (detail::is_end_by(SIGKILL, exit.code) && !detail::obeyed(exit))
      exit.hint = detail::kill_hint(kills_before, detail::oom_kills());
  if (const auto silent = detail::silent_rank(exits)) exits[*silent].is_silent = exits[*silent].was_stopped;
  return exits;
}

inline void Agent::wait(std::vector<detail::RankProcess>& ranks) {
  const auto ended = [](const detail::RankProcess& rank) { return rank.exit().has_value(); };
  while (!std::all_of(ranks.begin(), ranks.end(), ended)) poll_once(ranks);
}

inline void Agent::poll_once(std::vector<detail::RankProcess>& ranks) {
  std::vector<pollfd> waits = {{inbox_.descriptor(), POLLIN, 0}, {output_.waiting_for(), POLLOUT, 0}};
  std::vector<detail::RankStream*> streams;
  for (auto& rank : ranks)
    for (auto& stream : rank.streams())
      if (stream.descriptor() >= 0 && !output_.full()) {
        waits.push_back({stream.descriptor(), POLLIN, 0});
        streams.push_back(&stream);
      }
  for (const auto& rank : ranks)
    if (rank.milestones() >= 0) waits.push_back({rank.milestones(), POLLIN, 0});  // read by `notice_ends`
  int timeout = -1;
  for (const auto& deadline : {terminate_, kill_}) {
    if (!deadline) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()).count();
    const int bounded = static_cast<int>(std::clamp<decltype(left)>(left, 0, 1'000'000));
    timeout = timeout < 0 ? bounded : std::min(timeout, bounded);
  }
  if (std::any_of(ranks.begin(), ranks.end(),
                  [](const detail::RankProcess& rank) { return rank.lingers().has_value(); })) {
    const int soon = static_cast<int>(kPollInterval.count());
    timeout = timeout < 0 ? soon : std::min(timeout, soon);
  }
  ::poll(waits.data(), waits.size(), timeout);

  if (waits[1].revents != 0) output_.write_some();
  for (std::size_t i = 0; i < streams.size(); ++i)
    if (waits[i + 2].revents != 0) streams[i]->read_some(output_);
  while (const auto number = inbox_.next()) on_signal(*number, ranks);
  keep_deadlines(ranks);  // before notice_ends: if a deadline ends a rank, no other event may follow
  notice_ends(ranks);
}

inline void Agent::on_signal(int number, std::vector<detail::RankProcess>& ranks) {
  if (number == SIGCHLD) {  // `notice_ends` polls all ranks anyway
    if (::getpid() != 1) return;
    std::vector<pid_t> own;
    for (const auto& rank : ranks) own.push_back(rank.pid());
    return detail::collect_orphans(own);
  }
  if (number == SIGUSR1 || number == SIGUSR2) {
    vote_ = number;
    for (auto& rank : ranks) rank.ask_to_stop(number);
    return;
  }
  const auto now = Clock::now();
  if (request_ && number == SIGINT) {
    if (now - request_time_ >= kSameRequest) kill_ = now;
    return;
  }
  if (!request_) {
    request_time_ = now;
    kill_ = now + plan_.grace;
  }
  request_ = number;
  for (auto& rank : ranks) rank.ask_to_stop(number);
}

inline void Agent::notice_ends(std::vector<detail::RankProcess>& ranks) {
  const auto now = Clock::now();
  std::vector<ProcessEntry> table;
  const auto group_lives = [&](pid_t group) {
    if (table.empty()) table = process_table();
    return has_living_process(table, group);
  };
  for (auto& rank : ranks) {
    const bool has_just_ended = rank.poll_exit(now, group_lives);
    const auto by = rank.lingers();
    if (by && *by != SIGUSR1 && *by != SIGUSR2 && !terminate_ && !kill_) terminate_ = now + plan_.grace;
    if (!has_just_ended || rank.exit()->code == 0 || kill_) continue;
    // Ranks that stop by a signal save together: the other ranks end too, but perhaps later than kPeerGrace.
    const bool stopped = rank.exit()->code == static_cast<int>(Errc::stopped) || detail::obeyed(*rank.exit());
    if (detail::explains_itself(*rank.exit()))
      terminate_ = now;
    else if (!terminate_)
      terminate_ = now + (stopped ? plan_.grace : kPeerGrace);
  }
}

inline void Agent::keep_deadlines(std::vector<detail::RankProcess>& ranks) {
  const auto passed = [](std::optional<Clock::time_point>& deadline) {
    if (!deadline || Clock::now() < *deadline) return false;
    deadline.reset();
    return true;
  };
  if (passed(kill_)) {
    for (auto& rank : ranks) rank.end(SIGKILL);
    terminate_.reset();
  } else if (passed(terminate_)) {
    for (auto& rank : ranks) rank.end(SIGTERM);
    kill_ = Clock::now() + plan_.grace;
  }
}

/// Writes the remaining output. Waits for its reader, but at most 2 s after a request to end, and not after a new
/// signal.
inline void Agent::deliver_output() {
  while (output_.waiting_for() >= 0) {
    pollfd waits[] = {{inbox_.descriptor(), POLLIN, 0}, {output_.waiting_for(), POLLOUT, 0}};
    if (::poll(waits, 2, request_ ? 2'000 : -1) == 0) return;
    if (waits[1].revents != 0)
      output_.write_some();
    else
      while (const auto number = inbox_.next())
        if (number != SIGCHLD) return;
  }
}

}  // namespace ddpxx
