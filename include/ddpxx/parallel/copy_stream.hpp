// ddpxx/parallel/copy_stream.hpp — a stream for copies between pinned memory and a GPU, beside the stream that
// computes.
#pragma once

#include <memory>
#include <optional>

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace ddpxx {

/// Orders copies, so that the host waits for none of them before it needs the result. One made without a device has no
/// stream: run() calls `work` on the current one, and there is nothing to wait for.
class CopyStream {
 public:
  /// The end of some copies; null if there is no stream, and the copies have ended.
  using Mark = std::shared_ptr<c10::Event>;

  CopyStream() = default;
  explicit CopyStream(c10::Device device)
      : stream_{c10::impl::VirtualGuardImpl{device.type()}.getStreamFromGlobalPool(device)} {}

  /// Calls `work` with this stream as the current one. What it starts runs after all that the current stream has been
  /// given so far, and after earlier copies.
  template <class Work>
  Mark run(Work&& work) {
    if (!stream_) {
      work();
      return {};
    }
    const auto type = stream_->device_type();
    c10::Event given{type};
    given.record(current());
    given.block(*stream_);
    const c10::StreamGuard guard{*stream_};
    work();
    auto end = std::make_shared<c10::Event>(type);
    end->record(*stream_);
    return end;
  }

  /// Lets the current stream wait for the copies; the host goes on.
  void order_after(const Mark& mark) const {
    if (mark) mark->block(current());
  }

  /// The host waits until all copies have ended, also those of work that has thrown.
  void wait() const {
    if (stream_) stream_->synchronize();
  }

 private:
  c10::Stream current() const {
    return c10::impl::VirtualGuardImpl{stream_->device_type()}.getStream(stream_->device());
  }

  std::optional<c10::Stream> stream_;
};

}  // namespace ddpxx
