// ddpxx/train/stop_request.hpp — what asks a training to stop before its end: a signal, or the program itself.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <ddpxx/comm/group.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/signal_name.hpp>
#include <ddpxx/core/stop_signals.hpp>

namespace ddpxx {

/// The requests to stop that this rank has received, and whether all ranks know of one. A trainer sends `heard()` as a
/// vote with each step, and calls agree() when it reads that a rank has voted so.
class StopRequest {
 public:
  /// Asks this rank to stop. May be called in any thread, and in a signal handler.
  void ask() noexcept { is_asked_ = true; }

  /// From now on a signal of kStopSignals to this process is a request, until release_signals().
  void hold_signals() { signals_ = std::make_shared<StopSignals>(); }
  void release_signals() { signals_.reset(); }
  /// Like release_signals(), except that the signals are held as long as the returned object, if there is one, lives.
  std::shared_ptr<const StopSignals> hand_over_signals() noexcept { return std::exchange(signals_, nullptr); }
  /// Releases the signals; one that came takes effect now.
  void raise_signals_again() {
    if (signals_) signals_->raise_again();
    signals_.reset();
  }

  /// What has asked this rank: the name of a signal, or of the function that a program calls; empty for nothing.
  std::string heard() const {
    if (is_asked_) return "request_stop()";
    const auto signal = signals_ ? signals_->heard() : std::nullopt;
    return signal ? signal_name(*signal) : "";
  }

  /// Records that all ranks know that one of them was asked.
  void agree() noexcept { is_agreed_ = true; }
  bool is_agreed() const noexcept { return is_agreed_; }
  /// Takes agree() back: the training has ended without the request.
  void dismiss() noexcept { is_agreed_ = false; }

  /// Finds out what has asked the ranks, and forgets the program's request, which is answered by that.
  /// Ranks   Collective, after agree().
  void answer(const Group& group);
  /// What has asked the ranks, and where: `SIGTERM on rank 2`. Every rank has the same text after answer().
  const std::string& reason() const noexcept { return reason_; }

  /// The error `stopped` with which a training ends after step `step`, after answer(). `save_dir` has the snapshot of
  /// that step, or is empty.
  Error error(std::int64_t step, const std::string& save_dir) const;

  /// Forgets all requests of the program and what the ranks agreed on.
  void forget() noexcept { is_asked_ = is_agreed_ = false; }

 private:
  std::atomic<bool> is_asked_ = false;
  bool is_agreed_ = false;
  std::string reason_;
  std::shared_ptr<StopSignals> signals_;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/train/stop_request_inl.hpp>
#endif
