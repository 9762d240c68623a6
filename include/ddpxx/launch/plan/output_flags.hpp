// ddpxx/launch/plan/output_flags.hpp — reads the values of the flags that say where the outputs of the ranks go.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddpxx/launch/output_plan.hpp>
#include <ddpxx/launch/plan/launch_flag.hpp>

namespace ddpxx::detail {

/// The items of a list with commas between them; a double comma is a comma inside of an item.
inline std::vector<std::string> items_of(std::string_view text) {
  std::vector<std::string> items(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',')
      items.back() += text[i];
    else if (i + 1 < text.size() && text[i + 1] == ',')
      items.back() += text[i++];
    else
      items.emplace_back();
  }
  return items;
}

/// The value of `--redirects` or `--tee`.
inline StreamsOfRanks read_streams(const LaunchFlag& flag, const std::string& text) {
  const auto is_choice = [](std::string_view one) { return one.size() == 1 && one[0] >= '0' && one[0] <= '3'; };
  const auto choice = [](std::string_view one) { return static_cast<Streams>(one[0] - '0'); };
  if (is_choice(text)) return {.of_all = choice(text)};
  StreamsOfRanks result;
  for (const auto& item : items_of(text)) {
    const auto colon = item.find(':');
    const auto rank = item.substr(0, colon);
    if (colon == std::string::npos || !is_choice(item.substr(colon + 1)) || rank.empty() || rank.size() > 4 ||
        rank.find_first_not_of("0123456789") != std::string::npos)
      refuse(flag, text, "0, 1, 2, 3 or a list as 0:1,1:3 of local ranks with one of these numbers");
    result.of_one[std::stoi(rank)] = choice(item.substr(colon + 1));
  }
  return result;
}

/// The value of `--local-ranks-filter`; empty for all ranks.
inline std::set<int> read_local_ranks(const LaunchFlag& flag, const std::string& text) {
  std::set<int> ranks;
  if (text.empty()) return ranks;
  for (const auto& item : items_of(text)) {
    if (item.empty() || item.size() > 4 || item.find_first_not_of("0123456789") != std::string::npos)
      refuse(flag, text, "a list of local ranks as 0,1,2");
    ranks.insert(std::stoi(item));
  }
  return ranks;
}

/// The value from which `read_streams` reads this choice.
inline std::string text_of(const StreamsOfRanks& streams) {
  const auto figure = [](Streams choice) { return std::to_string(static_cast<int>(choice)); };
  if (streams.of_one.empty()) return figure(streams.of_all);
  std::string text;
  for (const auto& [rank, choice] : streams.of_one)
    text += (text.empty() ? "" : ",") + std::to_string(rank) + ':' + figure(choice);
  return text;
}

/// The value from which `items_of` reads these items.
inline std::string text_of(const std::vector<std::string>& items) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += ',';
    for (const char c : items[i]) text.append(c == ',' ? 2 : 1, c);
  }
  return text;
}

}  // namespace ddpxx::detail
