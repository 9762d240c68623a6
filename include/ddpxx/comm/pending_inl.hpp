// ddpxx/comm/pending_inl.hpp — the definitions of pending.hpp.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <utility>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <ddpxx/comm/pending.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>

namespace ddpxx {

DDPXX_INLINE Error CollectiveCall::error(const std::exception& cause) const {
  return Error{Errc::peer, std::string{op} + " failed: a rank is gone or did not answer in time"}
      .with("op", op)
      .with("bytes", bytes)
      .with("rank", rank)
      .with("world_size", world_size)
      .with("cause", first_line(cause));
}

DDPXX_INLINE Pending::Pending() = default;
DDPXX_INLINE Pending::Pending(c10::intrusive_ptr<c10d::Work> work, CollectiveCall call, std::function<void()> finish)
    : work_{std::move(work)}, call_{call}, finish_{std::move(finish)} {}
DDPXX_INLINE Pending::Pending(Pending&&) noexcept = default;
DDPXX_INLINE Pending& Pending::operator=(Pending&&) noexcept = default;
DDPXX_INLINE Pending::~Pending() = default;

DDPXX_INLINE void Pending::wait() {
  if (failure_) throw Error{*failure_};
  const auto work = std::exchange(work_, {});
  if (!work) return;
  try {
    work->wait();
  } catch (const std::exception& cause) {
    throw Error{failure_.emplace(call_.error(cause))};
  }
  if (finish_) std::exchange(finish_, {})();
}

}  // namespace ddpxx
