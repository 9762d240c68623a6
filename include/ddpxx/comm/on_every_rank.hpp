// ddpxx/comm/on_every_rank.hpp — what each rank does for itself: if it fails on one, it fails on all.
#pragma once

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// Runs `body` on every rank and returns its result. If it fails anywhere, all ranks throw: a rank that failed with an
/// error of its own throws that one, every other rank a copy of the error on the first rank that failed.
/// Ranks   Collective, but `body` is not.
/// Errors  those of `body`; `memory` where none was left; another foreign exception becomes `otherwise`.
template <class Body>
std::invoke_result_t<Body> on_every_rank(const Group& group, Errc otherwise, Body&& body) {
  std::optional<std::invoke_result_t<Body>> result;
  std::string verdict;
  try {
    result.emplace(std::forward<Body>(body)());
  } catch (const std::exception& cause) {
    const auto error = as_error(cause, otherwise);
    verdict = static_cast<char>(error.code()) + std::string{error.what()};
  }
  const auto verdicts = all_gather_text(verdict, group);
  const auto first = std::ranges::find_if(verdicts, [](const std::string& text) { return !text.empty(); });
  if (first == verdicts.end()) return *std::move(result);
  if (verdict.empty()) verdict = *first;
  Error error{static_cast<Errc>(verdict.front()), verdict.substr(1)};
  const auto origin = static_cast<int>(first - verdicts.begin());
  if (group.rank() != origin && verdict == *first) error.copied_from(origin);
  throw error;
}

}  // namespace ddpxx
