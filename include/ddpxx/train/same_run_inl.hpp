// ddpxx/train/same_run_inl.hpp — definitions of same_run.hpp; ddpxx/core/inline.hpp says how they are compiled.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/Version.h>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/train/same_run.hpp>
#include <ddpxx/version.hpp>

namespace ddpxx {

namespace detail {

DDPXX_INLINE std::string versions_text() {
  constexpr std::string_view kKey = "TORCH_VERSION=";
  const auto facts = at::show_config();
  const auto begin = facts.find(kKey);
  const auto torch =
      begin == std::string::npos ? "" : facts.substr(begin + kKey.size(), facts.find(',', begin) - begin - kKey.size());
  return std::to_string(kVersion.major) + '.' + std::to_string(kVersion.minor) + '.' + std::to_string(kVersion.patch) +
         " on LibTorch " + torch;
}

DDPXX_INLINE std::string by_value(const std::vector<std::string>& values) {
  std::string text;
  for (std::size_t first = 0; first < values.size(); ++first) {
    if (std::find(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(first), values[first]) !=
        values.begin() + static_cast<std::ptrdiff_t>(first))
      continue;  // told with an earlier rank
    std::string ranks;
    std::size_t count = 0;
    for (std::size_t rank = first; rank < values.size(); ++rank)
      if (values[rank] == values[first]) ranks += (count++ == 0 ? " " : ", ") + std::to_string(rank);
    text += (text.empty() ? "" : ", ") + values[first] + (count == 1 ? " on rank" : " on ranks") + ranks;
  }
  return text;
}

}  // namespace detail

DDPXX_INLINE void check_same_run(const Settings& settings, const Group& group) {
  std::string mine = "ddpxx\n" + detail::versions_text() + '\n';
  for (const auto& setting : settings) mine += setting.path + '\n' + setting.value + '\n';
  const auto all = all_gather_text(mine, group);
  std::vector<std::string> paths;  // in the order in which they are met first
  std::map<std::string, std::vector<std::string>> values;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::istringstream lines{all[rank]};
    for (std::string path, value; std::getline(lines, path) && std::getline(lines, value);) {
      const auto [found, is_new] = values.try_emplace(path, all.size(), "nothing");
      if (is_new) paths.push_back(path);
      auto& seen = found->second[rank];
      seen = seen == "nothing" || seen == value ? value : seen + " and " + value;  // a path may be met twice
    }
  }
  const auto differs = [&](const std::string& path) {
    const auto found = values.find(path);
    return found != values.end() &&
           std::ranges::any_of(found->second, [&](const auto& value) { return value != found->second.front(); });
  };
  const auto lies_in_another = [&](const std::string& path) {
    for (auto dot = path.find('.'); dot != path.npos; dot = path.find('.', dot + 1))
      if (differs(path.substr(0, dot))) return true;
    return false;
  };
  std::string differences;
  for (const auto& path : paths)
    if (differs(path) && !lies_in_another(path)) differences += "\n  " + path + ": " + detail::by_value(values[path]);
  if (!differences.empty())
    throw Error{Errc::peer, "the ranks were started with different settings:" + differences +
                                "\nstart all of them with one configuration and one text"};
}

}  // namespace ddpxx
