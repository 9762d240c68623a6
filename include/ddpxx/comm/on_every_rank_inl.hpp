// ddpxx/comm/on_every_rank_inl.hpp — the definitions of on_every_rank.hpp.
#pragma once

#include <algorithm>
#include <exception>
#include <functional>
#include <string>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/on_every_rank.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/comm/verdict.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

DDPXX_INLINE void detail::run_on_every_rank(const Group& group, Errc otherwise, const std::function<void()>& body) {
  std::string verdict;
  try {
    body();
  } catch (const std::exception& cause) {
    verdict = to_verdict(cause, otherwise);
  }
  const auto verdicts = all_gather_text(verdict, group);
  const auto first = std::ranges::find_if(verdicts, [](const std::string& text) { return !text.empty(); });
  if (first == verdicts.end()) return;
  if (verdict.empty()) verdict = *first;
  auto error = from_verdict(verdict);
  const auto origin = static_cast<int>(first - verdicts.begin());
  if (group.rank() != origin && verdict == *first) error.copied_from(origin);
  throw error;
}

}  // namespace ddpxx
