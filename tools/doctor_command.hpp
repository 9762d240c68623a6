// doctor_command.hpp — `ddpxx doctor [KEY=VALUE ...]` checks whether this host, or those of a launcher, can train.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/connect_config.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/secret.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/host_name.hpp>
#include <ddpxx/launch/join.hpp>
#include <ddpxx/launch/torchrun_environment.hpp>
#include <ddpxx/testing.hpp>

#include "argument_numbers.hpp"
#include "findings.hpp"
#include "host_checks.hpp"
#include "net_measurement.hpp"
#include "spawn_options.hpp"

struct DoctorArguments {
  std::string save_dir = {};
  std::string master = {};
  std::string device = "cpu";
  ddpxx::ConnectConfig comm{.join_timeout = 60.0, .collective_timeout = 60.0};

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(
        field<&DoctorArguments::save_dir>(
            "Place for snapshots, a folder or s3://bucket/prefix, in which a file is written and removed; empty: none"),
        field<&DoctorArguments::master>(
            "Host of rank 0, to which the route is looked up where no launcher sets MASTER_ADDR; empty: none"),
        field<&DoctorArguments::device>("Device of the ranks' messages", choices("auto", "cpu", "cuda")),
        field<&DoctorArguments::comm>("How the ranks meet and communicate"));
  }
};

/// How far the clocks of the ranks differ from rank 0's.
/// Ranks   Collective.
inline Finding check_clocks(const ddpxx::Group& group) {
  using Clock = std::chrono::system_clock;
  constexpr double kMaxSkew = 1.0;  // second
  ddpxx::barrier(group);
  const auto before = std::chrono::steady_clock::now();
  std::ostringstream mine;
  mine.precision(17);
  mine << std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
  const auto times = ddpxx::all_gather_text(mine.str(), group);
  // The ranks read their clocks between the barrier and the end of the exchange.
  const std::chrono::duration<double> uncertain = std::chrono::steady_clock::now() - before;
  double skew = 0;
  std::size_t farthest = 0;
  for (std::size_t rank = 0; rank < times.size(); ++rank)
    if (const double difference = std::stod(times[rank]) - std::stod(times[0]); std::abs(difference) > std::abs(skew)) {
      skew = difference;
      farthest = rank;
    }
  const auto text = "rank " + std::to_string(farthest) + " differs by " + time_text(std::abs(skew)) +
                    " from rank 0, measured to " + time_text(uncertain.count());
  if (std::abs(skew) > kMaxSkew + uncertain.count())
    return Finding::warning(text,
                            "let NTP set the clocks: S3 refuses requests of a clock that is 15 minutes off, and "
                            "dates in logs mislead");
  return Finding::ok(text);
}

/// Ranks   Collective. Only rank 0's text is meaningful.
inline Finding check_all_reduce(const ddpxx::Group& group, std::size_t hosts) {
  constexpr std::uint64_t kSmall = 4, kLarge = std::uint64_t{8} << 20U;
  constexpr std::int64_t kRepeats = 20;
  constexpr double kSlow = 100e6;
  const NetMeasurement net{group, kRepeats};
  const auto latency = net.all_reduce(kSmall), large = net.all_reduce(kLarge);
  const double rate = large.all_reduce_rate(group.size());
  const auto text = std::to_string(group.size()) + " ranks on " + std::to_string(hosts) +
                    (hosts == 1 ? " host" : " hosts") + " over " + group.backend()->getBackendName() +
                    ": all-reduce in " + time_text(latency.seconds) + ", " + rate_text(rate);
  const std::string hint =
      "if training is slow: a step of DDP sends up to 8 bytes for each parameter; "
      "gradient accumulation and 16-bit hooks send less";
  return rate < kSlow ? Finding::warning(text, hint) : Finding{Finding::Verdict::ok, text, hint};
}

/// The checks of this process's host. Those of the place are made by one rank of each host.
inline void check_host(Findings& findings, const DoctorArguments& arguments, const ddpxx::RankInfo& rank_info,
                       bool several_hosts, bool launched) {
  const bool shown = rank_info.local_rank.value == 0;
  findings.check("limits", check_limits, shown);
  findings.check("shared memory", check_shared_memory, shown);
  findings.check(
      "memory", [&] { return check_memory(rank_info.local_world_size.value); }, shown);
  findings.check("interfaces", check_interfaces, shown);
  const auto master = launched ? ddpxx::environment("MASTER_ADDR").value_or("") : arguments.master;
  findings.check(
      "route", [&] { return check_route(master, several_hosts); }, shown);
  if (!launched) findings.check("ports", check_ports, shown);  // a launcher has taken its port already
  if (shown)
    findings.check("snapshots", [&] {
      // Ranks without a launcher all have number 0.
      return check_place(arguments.save_dir, "ddpxx-doctor-" + std::to_string(rank_info.rank.value) + '-' +
                                                 ddpxx::make_secret().substr(0, 8));
    });
}

inline Finding connected(const ddpxx::Group& group) {
  return {Finding::Verdict::ok, "all " + std::to_string(group.size()) + " ranks have met and are connected",
          "if a run ends with code 5: MASTER_ADDR, a firewall or GLOO_SOCKET_IFNAME (docs/troubleshooting.md)"};
}

/// The checks of the connected ranks together, whose lines rank 0 prints.
/// Ranks   Collective.
inline void check_group(Findings& findings, const ddpxx::Group& group) {
  const auto hosts = ddpxx::all_gather_text(ddpxx::host_name(), group);
  const auto num_hosts = std::set<std::string>(hosts.begin(), hosts.end()).size();
  const bool shown = group.rank() == 0;
  const auto clocks = [&] {
    return num_hosts == 1 ? Finding::skipped("all ranks are on one host") : check_clocks(group);
  };
  findings.check("clocks", clocks, shown);
  findings.check(
      "network", [&] { return check_all_reduce(group, num_hosts); }, shown);
}

/// The exit code that all ranks agree on: that of the first rank with one.
/// Ranks   Collective.
inline int agreed_code(const ddpxx::Group& group, int code) {
  for (const auto& text : ddpxx::all_gather_text(std::to_string(code), group))
    if (text != "0") return std::stoi(text);
  return 0;
}

/// Without a launcher: this host, and two ranks on it.
inline int check_alone(const DoctorArguments& arguments) {
  Findings findings{""};
  findings.check("versions", check_versions);
  // The ranks are forked before anything starts threads or a GPU.
  try {
    const auto check_ranks = [](const ddpxx::Group& group) {
      Findings together{""};
      together.check(
          "connection", [&] { return connected(group); }, group.rank() == 0);
      check_group(together, group);
      if (const int code = agreed_code(group, together.code()); code != 0)
        throw ddpxx::Error{static_cast<ddpxx::Errc>(code), "a check of the ranks failed"};
    };
    ddpxx::spawn_ranks(2, check_ranks, spawn_options(arguments.device, arguments.comm));
  } catch (const ddpxx::Error& error) {
    std::string text = error.what();  // a line for each rank
    for (auto end = text.find('\n'); end != std::string::npos; end = text.find('\n', end)) text.replace(end, 1, "; ");
    findings.check("ranks", [&] { return Finding::failed(error.code(), text); });
  }
  check_host(findings, arguments, {}, /*several_hosts=*/false, /*launched=*/false);
  findings.check("GPUs", check_gpus);
  return findings.code();
}

/// The hosts of a launcher.
/// Ranks   Collective.
inline int check_launch(const DoctorArguments& arguments, const ddpxx::Launch& launch) {
  const auto& rank_info = launch.rank_info;
  const bool several_hosts = rank_info.local_world_size.value != rank_info.world_size.value;
  const bool shown = rank_info.local_rank.value == 0;
  Findings findings{ddpxx::host_name() + ": "};
  findings.check("versions", check_versions, shown);
  check_host(findings, arguments, rank_info, several_hosts, /*launched=*/true);
  findings.check("GPUs", check_gpus, shown);
  std::optional<ddpxx::Group> group;
  const auto connect = [&] {
    group.emplace(ddpxx::join(launch, arguments.device, arguments.comm));
    return connected(*group);
  };
  findings.check("connection", connect, rank_info.rank.value == 0);
  if (!group) return findings.code();
  check_group(findings, *group);
  const int code = agreed_code(*group, findings.code());
  group->leave();
  return code;
}

/// Returns the exit code: that of the first check that failed, or 0.
inline int doctor_command(int argc, char** argv) {
  const auto arguments = ddpxx::parse_config<DoctorArguments>(
      argc, argv, {.program = "ddpxx doctor", .argument_numbers = argument_numbers(2, argc)});
  const auto launch = ddpxx::torchrun_environment();
  return launch && launch->rank_info.world_size.value > 1 ? check_launch(arguments, *launch) : check_alone(arguments);
}
