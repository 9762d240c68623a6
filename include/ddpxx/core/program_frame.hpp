// ddpxx/core/program_frame.hpp — whether this process is a program of ddpxx's own, or a host that uses the library.
#pragma once

#include <atomic>

namespace ddpxx {

/// While one lives, the library may change settings that belong to the whole process. `run_program` makes one. Without
/// one, as in a host with a main() of its own, the library leaves them alone.
///
/// With a frame: `Trainer::fit` takes the signals of `kStopSignals` while it can save (`StopSignals`); `connect`
/// chooses the number of threads (`share_cores`), keeps freed memory (`keep_freed_blocks`), allocates tensors
/// without gaps between them (`use_tensor_allocator`), silences the backends' own log (`quiet_backend_log`), except for
/// NCCL's errors, and ignores SIGPIPE; a `StepProfiler` on a CPU silences the profiler's log.
class ProgramFrame {
 public:
  ProgramFrame() noexcept { ++count_; }
  ProgramFrame(const ProgramFrame&) = delete;
  ProgramFrame& operator=(const ProgramFrame&) = delete;
  ~ProgramFrame() { --count_; }

  /// Whether one lives in this process.
  static bool exists() noexcept { return count_ > 0; }

 private:
  static inline std::atomic<int> count_ = 0;
};

}  // namespace ddpxx
