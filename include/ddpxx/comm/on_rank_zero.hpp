// ddpxx/comm/on_rank_zero.hpp — what one rank does for all: if it fails there, it fails everywhere.
#pragma once

#include <functional>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// Runs `body` on rank 0 only; an error there becomes the same error on every rank, a copy on all but rank 0.
/// Ranks   Collective.
/// Errors  those of `body`; `memory` where none was left; another foreign exception becomes `otherwise`.
void on_rank_zero(const Group& group, Errc otherwise, const std::function<void()>& body);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/on_rank_zero_inl.hpp>
#endif
