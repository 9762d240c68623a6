// ddpxx/comm/on_rank_zero.hpp — what one rank does for all: if it fails there, it fails everywhere.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include <ddpxx/comm/text.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// Runs `body` on rank 0 only; an error there becomes the same error on every rank, a copy on all but rank 0.
/// Ranks   Collective.
/// Errors  those of `body`; `memory` where none was left; another foreign exception becomes `otherwise`.
template <class Body>
void on_rank_zero(const Group& group, Errc otherwise, Body&& body) {
  std::string verdict;
  if (group.rank() == 0) {
    try {
      std::forward<Body>(body)();
    } catch (const std::exception& cause) {
      const auto error = as_error(cause, otherwise);
      verdict = static_cast<char>(error.code()) + std::string{error.what()};
    }
  }
  verdict = broadcast_text(verdict, group);
  if (verdict.empty()) return;
  Error error{static_cast<Errc>(verdict.front()), verdict.substr(1)};
  if (group.rank() != 0) error.copied_from(0);
  throw error;
}

}  // namespace ddpxx
