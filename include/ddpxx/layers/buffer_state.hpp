// ddpxx/layers/buffer_state.hpp — the buffers of layers, such as running means: their values, out and in again.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include <ddpxx/layers/layer.hpp>

namespace ddpxx {

/// Buffers, each with a copy of its values.
using BufferStates = std::vector<std::pair<at::Tensor, at::Tensor>>;

/// The buffers of `layers` as they are now, each once.
inline BufferStates buffer_states(Layers layers) {
  const c10::NoGradGuard no_grad;
  BufferStates states;
  for (const auto* layer : layers)
    for (const auto& buffer : dynamic_cast<const torch::nn::Module&>(*layer).buffers())
      if (std::none_of(states.begin(), states.end(), [&](const auto& other) { return other.first.is_same(buffer); }))
        states.emplace_back(buffer, buffer.detach().clone());
  return states;
}

/// Sets buffers to the values of `states` for its lifetime, and puts back those from before. Autograd does not see the
/// writes: what a graph has saved of a buffer stays usable, and the graph is to be used up inside of the scope.
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
