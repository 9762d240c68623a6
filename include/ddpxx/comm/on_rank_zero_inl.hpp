// ddpxx/comm/on_rank_zero_inl.hpp — the definitions of on_rank_zero.hpp.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/comm/on_rank_zero.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/comm/verdict.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

DDPXX_INLINE void on_rank_zero(const Group& group, Errc otherwise, const std::function<void()>& body) {
  std::string verdict;
  if (group.rank() == 0) {
    try {
      body();
    } catch (const std::exception& cause) {
      verdict = detail::to_verdict(cause, otherwise);
    }
  }
  verdict = broadcast_text(verdict, group);
  if (verdict.empty()) return;
  auto error = detail::from_verdict(verdict);
  if (group.rank() != 0) error.copied_from(0);
  throw error;
}

}  // namespace ddpxx
