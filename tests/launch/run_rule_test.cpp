#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/launch/agent/node_result.hpp>
#include <ddpxx/launch/agent/round.hpp>
#include <ddpxx/launch/agent/run_rule.hpp>

namespace ddpxx::run_rule_test {
namespace {

using namespace detail;
using std::chrono::milliseconds;
using testing::HasSubstr;

LaunchPlan plan_of(int min_nodes, int num_nodes, int max_restarts = 0) {
  return {.num_nodes = num_nodes, .min_nodes = min_nodes, .max_restarts = max_restarts};
}
Exit well(int rank) { return {.rank = rank}; }
Exit saved(int rank) { return {.rank = rank, .code = 75, .signal_sent = SIGTERM}; }
Exit failed(int rank, int code, milliseconds after = milliseconds{10}) {
  return {.rank = rank, .code = code, .elapsed = after};
}
NodeResult node(std::vector<Exit> exits) { return {.host = "h", .exits = std::move(exits)}; }
NodeResult lost() { return {.host = "away", .is_lost = true}; }

/// The first decision of a run, as text: "restart 1", or "end with 9 by rank 3".
std::string decision(const LaunchPlan& plan, const std::vector<NodeResult>& nodes, std::optional<int> asked = {},
                     bool grows = false) {
  const auto step = RunRule{plan}.after(nodes, asked, grows);
  if (const auto* restart = std::get_if<Restart>(&step)) return "restart " + std::to_string(restart->restart);
  const auto& end = std::get<RunEnd>(step);
  return "end with " + std::to_string(end.code) + (end.cause ? " by rank " + std::to_string(*end.cause) : "");
}

TEST(RunRule, EndsWithTheCodeOfTheFirstFailureOfAllNodes) {
  const auto plan = plan_of(2, 2);
  EXPECT_EQ(decision(plan, {node({well(0)}), node({well(1)})}), "end with 0");
  EXPECT_EQ(decision(plan, {node({failed(0, 5)}), node({failed(1, -SIGKILL, milliseconds{200})})}),
            "end with 137 by rank 1")
      << "rank 0 has lost its peer";
  EXPECT_EQ(decision(plan, {node({failed(0, 4, milliseconds{50})}), node({failed(1, 6)})}), "end with 6 by rank 1");
  EXPECT_EQ(decision(plan, {node({saved(0)}), node({saved(1)})}), "end with 75");
}

TEST(RunRule, RestartsOnlyWhileRestartsRemain) {
  const std::vector failure = {node({well(0)}), node({failed(1, 9)})};
  EXPECT_EQ(decision(plan_of(2, 2, 1), failure), "restart 1");
  RunRule rule{plan_of(2, 2, 1)};
  EXPECT_THAT(std::get<Restart>(rule.after(failure, {}, false)).because,
              HasSubstr("node 1 (h), rank 1: exit code 9; restart 1 of 1"));
  const auto end = std::get<RunEnd>(rule.after(failure, {}, false));
  EXPECT_EQ(end.code, 9);
  EXPECT_EQ(end.first_failure, "node 1 (h), rank 1: exit code 9");
  EXPECT_EQ(decision(plan_of(2, 2, 1), {node({well(0)}), node({failed(1, 2)})}), "end with 2 by rank 1");
}

TEST(RunRule, CountsAStepOnAnyNode) {
  const Exit without{.rank = 1, .code = 1, .is_ours = true, .trains = true};
  const Exit with{.rank = 0, .code = 5, .is_ours = true, .trains = true, .stepped = true};
  RunRule rule{plan_of(2, 2, 100)}, stuck{plan_of(2, 2, 100)};
  for (int i = 0; i < 5; ++i)
    EXPECT_TRUE(std::holds_alternative<Restart>(rule.after(std::vector{node({with}), node({without})}, {}, false)));
  const std::vector nodes = {node({without}), node({without})};
  EXPECT_TRUE(std::holds_alternative<Restart>(stuck.after(nodes, {}, false)));
  EXPECT_TRUE(std::holds_alternative<Restart>(stuck.after(nodes, {}, false)));
  EXPECT_THAT(std::get<RunEnd>(stuck.after(nodes, {}, false)).refusal, HasSubstr("3 starts in a row"));
}

TEST(RunRule, CountsAStepOfARoundThatHasNotFailed) {
  const Exit without{.code = 1, .is_ours = true, .trains = true};
  const Exit with{.code = 75, .signal_sent = SIGTERM, .is_ours = true, .trains = true, .stepped = true};
  for (const bool grows : {true, false}) {
    RunRule rule{plan_of(1, 2, 100)};
    const auto restarts = [&](const std::vector<NodeResult>& nodes, bool another_comes) {
      return std::holds_alternative<Restart>(rule.after(nodes, {}, another_comes));
    };
    EXPECT_TRUE(restarts({node({without})}, false));
    EXPECT_TRUE(restarts({node({without})}, false));
    EXPECT_TRUE(grows ? restarts({node({with})}, true) : restarts({node({with}), lost()}, false));
    EXPECT_TRUE(restarts({node({without})}, false)) << "not the third start in a row without a step";
    EXPECT_TRUE(restarts({node({without})}, false));
    EXPECT_FALSE(restarts({node({without})}, false));
  }
}

TEST(RunRule, GoesOnWithoutALostNodeWhileEnoughAreLeft) {
  const std::vector nodes = {node({failed(0, 5)}), lost()};
  EXPECT_EQ(decision(plan_of(1, 2), nodes), "restart 0") << "no restart is used up";
  EXPECT_EQ(decision(plan_of(1, 2), {node({failed(0, 1)}), lost()}), "restart 0")
      << "a program that has lost its peers may end with any code";
  EXPECT_EQ(decision(plan_of(1, 2), {node({failed(0, -SIGSEGV)}), lost()}), "end with 139 by rank 0");
  EXPECT_EQ(decision(plan_of(2, 2, 9), nodes), "end with 5");
  RunRule rule{plan_of(2, 2)};
  EXPECT_EQ(std::get<RunEnd>(rule.after(nodes, {}, false)).failure,
            "node 1 (away) is lost: its agent has ended, hangs or cannot be reached; 1 node is left, and --nnodes asks "
            "for at least 2");
}

TEST(RunRule, WaitsForAnotherNodeWhereTooFewAreLeftAndTheirNumberIsNotFixed) {
  const std::vector nodes = {node({failed(0, 5)}), lost()};
  EXPECT_EQ(decision(plan_of(2, 3), nodes), "restart 0") << "no restart is used up";
  EXPECT_EQ(decision(plan_of(2, 3), nodes, SIGTERM), "end with 5");
  EXPECT_EQ(decision(plan_of(2, 3), {node({well(0)}), lost()}), "end with 5") << "the others are done";
  RunRule rule{plan_of(2, 3)};
  EXPECT_EQ(std::get<Restart>(rule.after(nodes, {}, false)).because,
            "node 1 (away) is lost: its agent has ended, hangs or cannot be reached; 1 node is left, and --nnodes asks "
            "for at least 2");
}

TEST(RunRule, StartsAgainWithANodeThatHasComeUnlessAllIsDone) {
  const auto plan = plan_of(1, 2);
  EXPECT_EQ(decision(plan, {node({saved(0), saved(1)})}, {}, true), "restart 0");
  EXPECT_EQ(decision(plan, {node({{.code = -SIGTERM, .signal_sent = SIGTERM}})}, {}, true), "restart 0")
      << "a program that does not handle the signal";
  EXPECT_EQ(decision(plan, {node({well(0), well(1)})}, {}, true), "end with 0");
  EXPECT_EQ(decision(plan, {node({{.rank = 0, .code = 0, .signal_sent = SIGTERM}})}, {}, true), "restart 0")
      << "a program of another kind may end with 0 after it has saved";
  EXPECT_EQ(decision(plan, {node({{.rank = 0, .code = 0, .signal_sent = SIGTERM, .is_ours = true}})}, {}, true),
            "end with 0");
  EXPECT_EQ(decision(plan, {node({failed(0, 9)})}, {}, true), "restart 0") << "it may have lost a peer that stopped";
  EXPECT_EQ(decision(plan, {node({failed(0, 6)})}, {}, true), "end with 6 by rank 0");
}

TEST(RunRule, EndsAllWhenASignalAsksForIt) {
  const auto plan = plan_of(1, 2, 9);
  EXPECT_EQ(decision(plan, {node({saved(0)}), node({saved(1)})}, SIGTERM), "end with 75");
  EXPECT_EQ(decision(plan, {node({saved(0)}), node({{.rank = 1, .code = -SIGTERM, .signal_sent = SIGTERM}})}, SIGTERM),
            "end with 143");
  EXPECT_EQ(decision(plan, {node({failed(0, 4)}), node({saved(1)})}, SIGTERM), "end with 4 by rank 0");
  auto asked_there = node({saved(1)});
  asked_there.asked = SIGUSR1;
  EXPECT_EQ(decision(plan, {node({saved(0)}), asked_there}, {}, true), "end with 75")
      << "the request of a node must win over a node that has come";
}

TEST(RunRule, NamesTheNodeThatIsLostAfterASignal) {
  RunRule rule{plan_of(1, 2)};
  const auto end = std::get<RunEnd>(rule.after(std::vector{node({saved(0)}), lost()}, SIGTERM, false));
  EXPECT_EQ(end.code, 5);
  EXPECT_EQ(
      end.failure,
      "node 1 (away) is lost: its agent has ended, hangs or cannot be reached; SIGTERM had asked the run to stop");
  const auto failure = std::get<RunEnd>(rule.after(std::vector{node({failed(0, 4)}), lost()}, SIGTERM, false));
  EXPECT_EQ(failure.failure, "node 0 (h), rank 0: exit code 4");
}

TEST(Round, IsReadAsItWasWritten) {
  const Round round{
      .number = 3, .restart = 1, .agents = {0, 4}, .master_port = 29'501, .token = "t", .because = "b\n\"c\""};
  const auto read = std::get<Round>(parse_next(to_text(round)));
  EXPECT_EQ(read.number, 3);
  EXPECT_EQ(read.restart, 1);
  EXPECT_EQ(read.agents, round.agents);
  EXPECT_EQ(read.master_port, 29'501);
  EXPECT_EQ(read.token, "t");
  EXPECT_EQ(read.because, round.because);
  EXPECT_EQ(read.node_of(4), 1);
  EXPECT_EQ(read.node_of(1), std::nullopt);

  const RunEnd end{.code = 9, .cause = 3, .failure = "f\xff", .refusal = "r", .first_failure = "a", .restart = 2};
  const auto read_end = std::get<RunEnd>(parse_next(to_text(end)));
  EXPECT_EQ(read_end.code, 9);
  EXPECT_EQ(read_end.asked, std::nullopt);
  EXPECT_EQ(read_end.cause, 3);
  EXPECT_EQ(read_end.failure, "f\xEF\xBF\xBD") << "a byte that is not UTF-8 must not end the run";
  EXPECT_EQ(read_end.refusal, "r");
  EXPECT_EQ(read_end.first_failure, "a");
  EXPECT_EQ(read_end.restart, 2);
}

TEST(Round, RefusesATextOfAnotherVersion) {
  for (const char* text : {"", "{", "{\"round\": \"x\"}", "{\"number\": 1}", "[]"}) {
    try {
      parse_next(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::peer);
      EXPECT_THAT(error.what(), HasSubstr("start the same version of ddpxx on all nodes"));
    }
  }
}

TEST(NodeResult, IsReadAsItWasWritten) {
  const NodeResult result{.host = "h",
                          .exits = {{.rank = 5,
                                     .local_rank = 1,
                                     .pid = 77,
                                     .code = -9,
                                     .elapsed = milliseconds{1234},
                                     .signal_sent = SIGTERM,
                                     .is_ours = true,
                                     .stepped = true,
                                     .hint = "memory"},
                                    {.rank = 6, .trains = true, .was_stopped = true, .is_silent = true}},
                          .asked = SIGINT};
  const auto read = parse_node_result(to_text(result));
  EXPECT_EQ(to_text(read), to_text(result));
  EXPECT_EQ(read.host, "h");
  EXPECT_EQ(read.asked, SIGINT);
  ASSERT_EQ(read.exits.size(), 2U);
  EXPECT_EQ(read.exits[0].rank, 5);
  EXPECT_EQ(read.exits[0].code, -9);
  EXPECT_EQ(read.exits[0].elapsed, milliseconds{1234});
  EXPECT_EQ(read.exits[0].signal_sent, SIGTERM);
  EXPECT_TRUE(read.exits[0].is_ours && read.exits[0].stepped && !read.exits[0].trains);
  EXPECT_EQ(read.exits[0].hint, "memory");
  EXPECT_EQ(read.exits[1].signal_sent, std::nullopt);
  EXPECT_TRUE(read.exits[1].trains && read.exits[1].was_stopped && read.exits[1].is_silent);
}

}  // namespace
}  // namespace ddpxx::run_rule_test
