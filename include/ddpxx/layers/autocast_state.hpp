// ddpxx/layers/autocast_state.hpp — this thread's autocast settings as a value, and a scope that sets them.
#pragma once

#include <ATen/autocast_mode.h>

namespace ddpxx {

/// Whether, and to which type, operations on a kind of device are cast.
struct AutocastState {
  at::DeviceType device = at::kCPU;
  bool enabled = false;
  at::ScalarType type = at::kBFloat16;
  bool cache = true;

  static AutocastState of(at::DeviceType device) {
    return {device, at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device),
            at::autocast::is_autocast_cache_enabled()};
  }
};

/// Sets an autocast state as long as it lives, then puts back what was there. At the end of the outermost scope the
/// cache of cast weights is cleared: it knows nothing of optimizer steps.
class AutocastScope {
 public:
  explicit AutocastScope(const AutocastState& state) : before_{AutocastState::of(state.device)} {
    set(state);
    at::autocast::increment_nesting();
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;
  ~AutocastScope() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    set(before_);
  }

 private:
  static void set(const AutocastState& state) {
    at::autocast::set_autocast_enabled(state.device, state.enabled);
    at::autocast::set_autocast_dtype(state.device, state.type);
    at::autocast::set_autocast_cache_enabled(state.cache);
  }

  AutocastState before_;
};

}  // namespace ddpxx
