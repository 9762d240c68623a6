// net_command.hpp — `ddpxx net [KEY=VALUE ...]` measures latency and bandwidth between ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iomanip>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include <ddpxx/comm/connect_config.hpp>
#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/link_time.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/host_name.hpp>
#include <ddpxx/core/standard_output.hpp>
#include <ddpxx/core/units.hpp>
#include <ddpxx/launch/join.hpp>
#include <ddpxx/launch/torchrun_environment.hpp>
#include <ddpxx/testing.hpp>

#include "argument_numbers.hpp"
#include "net_measurement.hpp"
#include "spawn_options.hpp"

struct NetArguments {
  std::uint64_t max_bytes = std::uint64_t{64} << 20U;
  std::int64_t repeats = 50;
  std::string device = "auto";
  ddpxx::ConnectConfig comm{};

  static constexpr auto describe() {
    using namespace ddpxx;
    constexpr double kMaxBytes = 1e11;
    return fields(
        field<&NetArguments::max_bytes>("Largest message", between(4.0, kMaxBytes), Unit::bytes),
        field<&NetArguments::repeats>("How often a message is sent, fewer times if it is large; the time is the median",
                                      between(3.0, 1e6)),
        field<&NetArguments::device>("Device of the messages", choices("auto", "cpu", "cuda")),
        field<&NetArguments::comm>("How the ranks meet and communicate"));
  }
};

/// Prints the measurements on rank 0.
/// Ranks   Collective.
inline void print_net(const ddpxx::Group& group, const NetArguments& arguments) {
  constexpr std::uint64_t kSmall = 4, kFirst = 1024, kFactor = 8;
  const bool tells = group.rank() == 0;
  const auto hosts = ddpxx::all_gather_text(ddpxx::host_name(), group);
  const std::set<std::string> different(hosts.begin(), hosts.end());
  const auto device = group.device().is_cpu() ? "cpu" : group.device().str();
  if (tells)
    std::cout << group.size() << " ranks on " << different.size() << (different.size() == 1 ? " host" : " hosts")
              << " over " << group.backend()->getBackendName() << ", tensors on " << device << '\n';
  const NetMeasurement net{group, arguments.repeats};
  std::vector<ddpxx::MeasuredAllReduce> times;
  const auto measure = [&](std::uint64_t bytes) {
    const auto time = net.all_reduce(bytes);
    times.push_back({static_cast<std::int64_t>(bytes), time.seconds});
    return time;
  };
  const auto latency = measure(kSmall);
  if (tells) std::cout << "all-reduce latency  " << time_text(latency.seconds) << '\n';
  std::vector<std::uint64_t> sizes;
  for (auto bytes = kFirst; bytes < arguments.max_bytes; bytes *= kFactor) sizes.push_back(bytes);
  sizes.push_back(arguments.max_bytes);
  for (const auto bytes : sizes) {
    const auto time = measure(bytes);
    if (tells)
      std::cout << "all-reduce " << std::setw(10) << ddpxx::bytes_text(bytes) << "  " << std::setw(8)
                << time_text(time.seconds) << "  " << rate_text(time.all_reduce_rate(group.size())) << std::endl;
  }
  if (tells) {
    if (const auto link = ddpxx::fit_link(times, group.size()))
      std::printf("as links, for mingpt plan --time: link.latency=%.6gms link.bandwidth=%.4gGB\n", 1e3 * link->latency,
                  link->bandwidth / 1e9);
    else
      std::printf("as links: unknown, since these messages are too small to tell a bandwidth; raise max_bytes\n");
  }
  if (group.backend()->getBackendName() == "shm") {  // it has collectives only
    if (tells) std::cout << "rank 0 to rank 1: not measured over shared memory; comm.backend=gloo does" << std::endl;
    return;
  }
  // To the first rank on another host than rank 0's, since that is what training waits for.
  const auto other = std::ranges::find_if(hosts, [&](const auto& host) { return host != hosts.front(); });
  const int peer = other == hosts.end() ? group.size() - 1 : static_cast<int>(other - hosts.begin());
  const auto hop = net.point_to_point(kSmall, peer), stream = net.point_to_point(arguments.max_bytes, peer);
  if (tells)
    std::cout << "rank 0 to rank " << peer << " (" << hosts[static_cast<std::size_t>(peer)] << ")  latency "
              << time_text(hop.seconds) << "  " << rate_text(stream.rate()) << std::endl;
}

inline void net_command(int argc, char** argv) {
  const auto arguments = ddpxx::parse_config<NetArguments>(
      argc, argv, {.program = "ddpxx net", .argument_numbers = argument_numbers(2, argc)});
  const auto launch = ddpxx::torchrun_environment();
  if (!launch)
    return ddpxx::spawn_ranks(
        2,
        [&](const ddpxx::Group& group) {
          print_net(group, arguments);
          ddpxx::check_standard_output();  // a rank's output does not pass through this process
        },
        spawn_options(arguments.device, arguments.comm));
  if (launch->rank_info.world_size.value == 1)
    throw ddpxx::Error{ddpxx::Errc::config,
                       "ddpxx net needs two ranks: start it by a launcher with two or more, or without a launcher"};
  auto group = ddpxx::join(launch, arguments.device, arguments.comm);
  print_net(group, arguments);
  group.leave();
}
