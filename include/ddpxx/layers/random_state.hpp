// ddpxx/layers/random_state.hpp — saves and restores the state of the random numbers that dropout draws.
#pragma once

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

namespace ddpxx {

/// The state of the generator that dropout on `device` draws from.
inline at::Tensor random_state(at::Device device) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock{generator.mutex()};
  return generator.get_state();
}
inline void set_random_state(at::Device device, const at::Tensor& state) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock{generator.mutex()};
  generator.set_state(state);
}

inline void seed_random(at::Device device, std::uint64_t seed) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard lock{generator.mutex()};
  generator.set_current_seed(seed);
}

/// The states of all generators from which operations on `device` may draw: the device's and the CPU's.
using RandomStates = std::vector<std::pair<at::Device, at::Tensor>>;

inline RandomStates random_states(at::Device device) {
  RandomStates states{{at::kCPU, random_state(at::kCPU)}};
  if (!device.is_cpu()) states.emplace_back(device, random_state(device));
  return states;
}
inline void set_random_states(const RandomStates& states) {
  for (const auto& [device, state] : states) set_random_state(device, state);
}

/// Sets the generators to `states` for its lifetime, then restores their states from before.
class RandomScope {
 public:
  explicit RandomScope(const RandomStates& states) : before_{random_states(states.back().first)} {
    set_random_states(states);
  }
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;
  ~RandomScope() { set_random_states(before_); }

 private:
  RandomStates before_;
};

}  // namespace ddpxx
