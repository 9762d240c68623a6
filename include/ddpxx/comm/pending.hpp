// ddpxx/comm/pending.hpp — a collective that was started and not yet waited for.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <ddpxx/core/error.hpp>

namespace ddpxx {

/// Who called which collective with how much: what an error about it says.
struct CollectiveCall {
  std::string_view op;
  std::int64_t bytes = 0;
  int rank = 0;
  int world_size = 1;

  Error error(const std::exception& cause) const {
    return Error{Errc::peer, std::string{op} + " failed: a rank is gone or did not answer in time"}
        .with("op", op)
        .with("bytes", bytes)
        .with("rank", rank)
        .with("world_size", world_size)
        .with("cause", first_line(cause));
  }
};

/// A started collective. Its tensors may be used again after `wait()`.
class [[nodiscard]] Pending {
 public:
  /// Already done: what a world of one returns.
  Pending() = default;
  /// `finish`, if given, is the part of the collective that this rank does itself, once the bytes are there.
  Pending(c10::intrusive_ptr<c10d::Work> work, CollectiveCall call, std::function<void()> finish = {})
      : work_{std::move(work)}, call_{call}, finish_{std::move(finish)} {}
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&&) noexcept = default;

  /// Whether it was started, and no wait() has succeeded since.
  bool under_way() const noexcept { return work_ || failure_; }

  /// Waits until the result may be used (on a GPU: orders the current stream after it). A second call does nothing,
  /// but after a failure every further call throws the same error: the tensors may be half filled.
  /// Errors  `peer`, naming op, bytes and rank.
  void wait() {
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

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  CollectiveCall call_;
  std::function<void()> finish_;
  std::optional<Error> failure_;
};

}  // namespace ddpxx
