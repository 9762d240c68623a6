// ddpxx/comm/on_every_rank.hpp — runs work on every rank; if it fails on one rank, it fails on all.
#pragma once

#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx {

namespace detail {

/// Does what `on_every_rank` does, for a body without a result.
void run_on_every_rank(const Group& group, Errc otherwise, const std::function<void()>& body);

}  // namespace detail

/// Runs `body`, which must return a value, on every rank and returns its result. If it fails on any rank, all ranks
/// throw: a rank on which it failed throws its own error, every other rank a copy of the error of the first rank that
/// failed.
/// Ranks   Collective, but `body` is not.
/// Errors  those of `body`; `memory` if memory ran out; `peer` if the system has no more threads; any other
///         std::exception becomes an Error with the code `otherwise`.
template <class Body>
std::invoke_result_t<Body> on_every_rank(const Group& group, Errc otherwise, Body&& body) {
  std::optional<std::invoke_result_t<Body>> result;
  detail::run_on_every_rank(group, otherwise, [&] { result.emplace(std::forward<Body>(body)()); });
  return *std::move(result);
}

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/on_every_rank_inl.hpp>
#endif
