// ddpxx/layers/buffer_state.hpp — saves and restores the values of buffers of layers, such as running means.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <ddpxx/layers/layer.hpp>

namespace ddpxx {

/// Pairs of a buffer and a copy of its values.
using BufferStates = std::vector<std::pair<at::Tensor, at::Tensor>>;

/// Copies the current values of the buffers of `layers`; a shared buffer is copied once.
inline BufferStates buffer_states(Layers layers) {
  const c10::NoGradGuard no_grad;
  BufferStates states;
  for (const auto* layer : layers)
    for (const auto& buffer : dynamic_cast<const torch::nn::Module&>(*layer).buffers())
      if (std::none_of(states.begin(), states.end(), [&](const auto& other) { return other.first.is_same(buffer); }))
        states.emplace_back(buffer, buffer.detach().clone());
  return states;
}

/// Sets buffers to the values of `states` for its lifetime, then restores their values from before. Autograd does not
/// see the writes: a graph may have saved a buffer, so run its backward pass inside of the scope.
class BufferScope {
 public:
  explicit BufferScope(const BufferStates& states) {
    before_.reserve(states.size());
    for (const auto& [buffer, values] : states) {
      before_.emplace_back(buffer, buffer.detach().clone());
      buffer.variable_data().copy_(values);
    }
  }
  BufferScope(const BufferScope&) = delete;
  BufferScope& operator=(const BufferScope&) = delete;
  ~BufferScope() {
    for (const auto& [buffer, values] : before_) buffer.variable_data().copy_(values);
  }

 private:
  BufferStates before_;
};

}  // namespace ddpxx
