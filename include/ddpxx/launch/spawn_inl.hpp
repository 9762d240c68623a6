// ddpxx/launch/spawn_inl.hpp — the definitions of spawn.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/launch/agent.hpp>
#include <ddpxx/launch/launch_plan.hpp>
#include <ddpxx/launch/plan/flag_values.hpp>
#include <ddpxx/launch/plan/launch_flag.hpp>
#include <ddpxx/launch/running_program.hpp>
#include <ddpxx/launch/spawn.hpp>
#include <ddpxx/launch/standard_descriptors.hpp>

namespace ddpxx::detail {

/// The arguments of this process, without its name.
inline std::vector<std::string> own_arguments() {
  std::ifstream file{"/proc/self/cmdline", std::ios::binary};
  const std::string text{std::istreambuf_iterator<char>{file}, {}};
  std::vector<std::string> arguments;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\0', begin), text.size());
    arguments.push_back(text.substr(begin, end - begin));
  }
  if (!arguments.empty()) arguments.erase(arguments.begin());
  return arguments;
}

DDPXX_INLINE std::optional<SpawnRequest> read_spawn(const std::vector<std::string>& arguments) {
  constexpr std::string_view kName = "--spawn";
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  const auto asks = [&](const std::string& argument) {
    return argument == kName || argument.starts_with("--spawn=") || argument.starts_with("spawn=");
  };
  const auto found = std::find_if(arguments.begin(), end, asks);
  if (found == end) return std::nullopt;
  if (const auto second = std::find_if(found + 1, end, asks); second != end)
    throw Error{Errc::config, harmless(*found) + " and " + harmless(*second) + ": give the number of ranks once"};
  for (const char* sweep : {"-m", "--multirun"})
    if (std::find(arguments.begin(), end, sweep) != end)
      throw Error{Errc::config, harmless(*found) + " does not go with the sweep of " + sweep +
                                    ": write ddpxx-run --nproc-per-node N PROGRAM ... " + sweep};
  const bool is_apart = *found == kName;
  if (is_apart && found + 1 == end) throw Error{Errc::config, "--spawn needs a value: the number of ranks"};
  SpawnRequest request{.value = is_apart ? *(found + 1) : found->substr(found->find('=') + 1), .arguments = {}};
  request.arguments.assign(arguments.begin(), found);
  request.arguments.insert(request.arguments.end(), found + (is_apart ? 2 : 1), arguments.end());
  return request;
}

DDPXX_INLINE std::optional<int> spawn_ranks_of_program() {
  auto request = read_spawn(own_arguments());
  if (!request) return std::nullopt;
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK"})
    if (const auto value = environment(name))
      throw Error{Errc::config, "spawn=" + harmless(request->value) + " and the environment variable " + name + '=' +
                                    harmless(*value) +
                                    ": a launcher has started this process as a rank already; leave spawn out, or "
                                    "unset RANK, WORLD_SIZE and LOCAL_RANK"};
  open_standard_descriptors(O_RDWR);
  LaunchPlan plan;
  plan.ranks_per_node = read_ranks_per_node(LaunchFlag{.name = "spawn"}, request->value);
  plan.program = running_program();
  plan.arguments = std::move(request->arguments);
  return Agent{std::move(plan)}.run();
}

}  // namespace ddpxx::detail
