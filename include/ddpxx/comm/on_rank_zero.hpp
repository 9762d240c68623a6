// ddpxx/comm/on_rank_zero.hpp — runs work on rank 0 for all ranks; if it fails there, it fails on all ranks.
#pragma once

#include <functional>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// Runs `body` on rank 0 only. If it throws, every other rank throws a copy of the error.
/// Ranks   Collective.
/// Errors  those of `body`; `memory` if none was left; any other foreign exception becomes `otherwise`.
void on_rank_zero(const Group& group, Errc otherwise, const std::function<void()>& body);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/on_rank_zero_inl.hpp>
#endif
