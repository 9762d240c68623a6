// ddpxx/comm/pending.hpp — a collective that has started and has not been waited for yet.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string_view>

#include <c10/util/intrusive_ptr.h>

#include <ddpxx/core/error.hpp>

namespace c10d {
class Work;
}

namespace ddpxx {

/// The facts about a collective that its errors contain.
struct CollectiveCall {
  std::string_view op;
  std::int64_t bytes = 0;
  int rank = 0;
  int world_size = 1;

  Error error(const std::exception& cause) const;
};

/// A started collective. Its tensors may be used again after `wait()`.
class [[nodiscard]] Pending {
 public:
  /// A collective that has ended, as in a world of one.
  Pending();
  /// `finish`, if given, is the part of the collective that this rank computes itself after it has received the bytes.
  Pending(c10::intrusive_ptr<c10d::Work> work, CollectiveCall call, std::function<void()> finish = {});
  Pending(Pending&&) noexcept;
  Pending& operator=(Pending&&) noexcept;
  ~Pending();

  /// Whether the collective has started and no wait() has succeeded since.
  bool under_way() const noexcept { return work_ || failure_; }

  /// Waits until the result may be used (on a GPU: orders the current stream after it). A second call does nothing,
  /// but after a failure every further call throws the same error: the tensors may be half filled.
  /// Errors  `peer`, naming op, bytes and rank.
  void wait();

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  CollectiveCall call_;
  std::function<void()> finish_;
  std::optional<Error> failure_;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/pending_inl.hpp>
#endif
