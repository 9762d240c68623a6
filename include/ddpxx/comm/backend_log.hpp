// ddpxx/comm/backend_log.hpp — the backends' own log lines.
#pragma once

#include <c10/util/Logging.h>

#include <ddpxx/core/environment.hpp>

namespace ddpxx {

/// Silences what LibTorch's backends print beside the error that they throw, unless TORCH_CPP_LOG_LEVEL asks for it:
/// an error is reported once, by whoever catches it.
inline void quiet_backend_log() {
  constexpr int kFatal = 3;
  if (!environment("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = kFatal;
}

}  // namespace ddpxx
