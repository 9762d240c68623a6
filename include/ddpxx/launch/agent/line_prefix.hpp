// ddpxx/launch/agent/line_prefix.hpp — the text before each line of a rank's output.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/launch/launch_plan.hpp>

namespace ddpxx::detail {

/// Replaces `$name` and `${name}` by the values, and `$$` by a dollar; leaves other texts as they are.
/// Source  Python's string.Template.safe_substitute.
inline std::string fill_template(std::string_view text, const std::map<std::string, std::string, std::less<>>& values) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
  std::string result;
  while (!text.empty()) {
    const auto dollar = text.find('$');
    result += text.substr(0, dollar);
    if (dollar == std::string_view::npos) break;
    text.remove_prefix(dollar);
    if (text.starts_with("$$")) {
      result += '$';
      text.remove_prefix(2);
      continue;
    }
    const bool has_brace = text.starts_with("${");
    const auto rest = text.substr(has_brace ? 2 : 1);
    const auto name = rest.substr(0, rest.find_first_not_of(kLetters));
    const auto found = values.find(name);
    const bool is_closed = !has_brace || (name.size() < rest.size() && rest[name.size()] == '}');
    if (found == values.end() || !is_closed) {
      result += '$';
      text.remove_prefix(1);
      continue;
    }
    result += found->second;
    text.remove_prefix(name.size() + (has_brace ? 3 : 1));
  }
  return result;
}

/// The prefix of a rank's lines: what TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE says; otherwise torchrun's `[default0]:`
/// for lines that also go to a file, and for others `[rank0]: `, or nothing if the machine has only one rank.
inline std::string line_prefix(const LaunchPlan& plan, const RankInfo& rank_info, bool goes_to_file) {
  const auto rank = std::to_string(rank_info.rank.value), local_rank = std::to_string(rank_info.local_rank.value);
  if (const auto form = environment("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"))
    return fill_template(*form, {{"role_name", plan.role}, {"rank", rank}, {"local_rank", local_rank}});
  if (goes_to_file) return '[' + plan.role + local_rank + "]:";
  return plan.ranks_per_node > 1 ? "[rank" + rank + "]: " : "";
}

}  // namespace ddpxx::detail
