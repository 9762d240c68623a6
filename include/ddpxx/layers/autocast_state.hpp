// ddpxx/layers/autocast_state.hpp — this thread's autocast settings as a value, and a scope that sets them.
#pragma once

#include <ATen/autocast_mode.h>

namespace ddpxx {

/// Autocast settings for one type of device: whether operations are cast, to which type, and whether casts are cached.
struct AutocastState {
  at::DeviceType device = at::kCPU;
  bool enabled = false;
  at::ScalarType type = at::kBFloat16;
  bool cache = true;

  /// The settings of this thread.
  static AutocastState of(at::DeviceType device) {
    return {device, at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device),
            at::autocast::is_autocast_cache_enabled()};
  }

  /// The type in which a linear layer computes with tensors of this type: autocast leaves float64 as it is.
  at::ScalarType type_for(at::ScalarType given) const { return enabled && given != at::kDouble ? type : given; }
};

/// Sets an autocast state for its lifetime, then restores the state from before. The end of the outermost scope clears
/// the cache of cast weights, since an optimizer step changes the weights.
class AutocastScope {
 public:
  explicit AutocastScope(const AutocastState& state) : before_{AutocastState::of(state.device)} {
    set(state);
    at::autocast::increment_nesting();
  }
  /// Turns autocast off for this type of device.
  static AutocastScope off(at::DeviceType device) {
    auto state = AutocastState::of(device);
    state.enabled = false;
    return AutocastScope{state};
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
