// ddpxx/comm/pending_inl.hpp — the definitions of pending.hpp.
#pragma once

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include <c10/util/Exception.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <ddpxx/comm/different_calls.hpp>
#include <ddpxx/comm/pending.hpp>
#include <ddpxx/comm/trace_span.hpp>
#include <ddpxx/comm/wait_clock.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/rank_progress.hpp>

namespace ddpxx {

DDPXX_INLINE Error CollectiveCall::with_facts(Error error, const std::string& cause) const {
  return error.with("op", op)
      .with("bytes", bytes)
      .with("rank", rank)
      .with(in_part ? "ranks_of_part" : "world_size", num_ranks)
      .with("cause", cause);
}

DDPXX_INLINE void CollectiveCall::throw_if_of_this_rank(const std::exception& cause) const {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&cause);
  // An error of NCCL has several lines, and the last one says that no memory was left.
  std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : cause.what();
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (dynamic_cast<const std::bad_alloc*>(&cause) != nullptr || detail::tells_of_memory(text))
    throw with_facts({Errc::memory, std::string{op} + " failed: out of memory: use a smaller batch or model"}, text);
  if (dynamic_cast<const c10::AcceleratorError*>(&cause) != nullptr) throw;
}

[[noreturn]] DDPXX_INLINE void CollectiveCall::throw_start_error(const std::exception& cause) const {
  throw_if_of_this_rank(cause);
  const bool of_connection =
      dynamic_cast<const c10::Error*>(&cause) == nullptr || dynamic_cast<const c10::DistError*>(&cause) != nullptr;
  if (of_connection) throw_wait_error(cause);
  throw with_facts({Errc::config, std::string{op} + " failed: the backend refuses its tensors"}, first_line(cause));
}

[[noreturn]] DDPXX_INLINE void CollectiveCall::throw_wait_error(const std::exception& cause) const {
  throw_if_of_this_rank(cause);
  const char* reason = dynamic_cast<const detail::DifferentCalls*>(&cause) != nullptr
                           ? "the ranks call different collectives; call them in one order and with sizes that fit"
                           : "a rank is gone or did not answer in time";
  throw with_facts({Errc::peer, std::string{op} + " failed: " + reason}, first_line(cause));
}

DDPXX_INLINE Pending::Pending() = default;
DDPXX_INLINE Pending::Pending(c10::intrusive_ptr<c10d::Work> work, CollectiveCall call, std::function<void()> finish,
                              std::shared_ptr<WaitClock> clock)
    : work_{std::move(work)}, call_{call}, finish_{std::move(finish)}, clock_{std::move(clock)} {
  number_ = own_progress().note_start(call_.op, call_.bytes);
}
DDPXX_INLINE Pending::Pending(Pending&&) noexcept = default;
DDPXX_INLINE Pending& Pending::operator=(Pending&&) noexcept = default;
DDPXX_INLINE Pending::~Pending() = default;

DDPXX_INLINE void Pending::wait() {
  if (failure_) throw_failure();
  const auto work = std::exchange(work_, {});
  if (!work) return;
  const TraceSpan span{"wait for", call_.op};
  auto& progress = own_progress();
  progress.note_wait(call_.op, call_.bytes, number_);
  try {
    try {
      const auto clock = std::move(clock_);
      if (clock)
        clock->count([&] { work->wait(); });
      else
        work->wait();
      progress.note_end();
    } catch (const std::exception& cause) {
      progress.note_failure();
      call_.throw_wait_error(cause);
    }
    try {
      if (finish_) std::exchange(finish_, {})();
    } catch (const std::exception& cause) {
      call_.throw_start_error(cause);
    }
  } catch (...) {
    failure_ = std::current_exception();
  }
  if (failure_) throw_failure();
}

DDPXX_INLINE void Pending::throw_failure() const {
  try {
    std::rethrow_exception(failure_);
  } catch (const Error& error) {
    throw Error{error};  // the caller may add facts to its copy
  }
}

}  // namespace ddpxx
