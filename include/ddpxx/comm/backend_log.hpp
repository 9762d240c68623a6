// ddpxx/comm/backend_log.hpp — silences the log lines of the backends.
#pragma once

#include <c10/util/Logging.h>

#include <ddpxx/comm/backend.hpp>
#include <ddpxx/core/environment.hpp>

namespace ddpxx {

/// Silences the log lines that LibTorch's backends print in addition to the errors that they throw, unless
/// TORCH_CPP_LOG_LEVEL asks for them, so that each error is reported once, by the code that catches it. NCCL's error
/// lines stay: they alone say what a rank has waited for, and where LibTorch has written its record of the last
/// collectives.
inline void quiet_backend_log(Backend backend = Backend::gloo) {
  constexpr int kError = 2, kFatal = 3;
  if (!environment("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = backend == Backend::gloo ? kFatal : kError;
}

}  // namespace ddpxx
