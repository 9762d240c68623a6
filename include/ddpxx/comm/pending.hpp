// ddpxx/comm/pending.hpp — a collective that has started and has not been waited for yet.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <c10/util/intrusive_ptr.h>

#include <ddpxx/core/error.hpp>

namespace c10d {
class Work;
}

namespace ddpxx {

class WaitClock;

/// The facts about a collective that its errors contain.
struct CollectiveCall {
  std::string_view op;
  std::int64_t bytes = 0;
  int rank = 0;  ///< In the run.
  int num_ranks = 1;
  bool in_part = false;  ///< Whether the ranks are a part of those of the run.

  /// Called where `cause`, the exception of the collective's start, is being handled: throws it as an Error.
  /// Errors  `config` if the backend refuses the tensors, `memory` if no memory was left, otherwise `peer`. An error of
  ///         the GPU itself is thrown on as it is.
  [[noreturn]] void throw_start_error(const std::exception& cause) const;

  /// Called where `cause`, the exception of a wait for the started collective, is being handled: throws it as an Error.
  /// Errors  those of throw_start_error() without `config`: Gloo reports a late rank as it reports wrong tensors.
  [[noreturn]] void throw_wait_error(const std::exception& cause) const;

 private:
  /// Throws `cause`, which is being handled, as an Error if this rank has no memory left, and as it is if it is an
  /// error of the GPU.
  void throw_if_of_this_rank(const std::exception& cause) const;
  Error with_facts(Error error, const std::string& cause) const;
};

/// A started collective. Its tensors may be used again after `wait()`.
class [[nodiscard]] Pending {
 public:
  /// A collective that has ended, as in a world of one.
  Pending();
  /// `finish`, if given, is the part of the collective that this rank computes itself after it has received the bytes.
  /// `clock`, if given, measures the wait.
  Pending(c10::intrusive_ptr<c10d::Work> work, CollectiveCall call, std::function<void()> finish = {},
          std::shared_ptr<WaitClock> clock = {});
  Pending(Pending&&) noexcept;
  Pending& operator=(Pending&&) noexcept;
  ~Pending();

  /// Whether the collective has started and no wait() has succeeded since.
  bool under_way() const noexcept { return work_ || failure_; }

  /// Waits until the result may be used (on a GPU: orders the current stream after it). A second call does nothing,
  /// but after a failure every further call throws the same error: the tensors may be half filled.
  /// Errors  `peer` or `memory`, naming op, bytes and rank; `config` if this rank cannot add up what it has received.
  ///         An error of the GPU itself is thrown on as it is.
  void wait();

 private:
  [[noreturn]] void throw_failure() const;

  c10::intrusive_ptr<c10d::Work> work_;
  CollectiveCall call_;
  std::uint64_t number_ = 0;  ///< Number of this collective among those that this rank has started.
  std::function<void()> finish_;
  std::shared_ptr<WaitClock> clock_;
  std::exception_ptr failure_;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/pending_inl.hpp>
#endif
