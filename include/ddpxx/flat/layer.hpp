// ddpxx/flat/layer.hpp — the layers of a model as the strategies see them, and the runner that calls them.
#pragma once

#include <concepts>
#include <functional>
#include <utility>

namespace ddpxx {

/// Tag of a layer that may be sharded or recomputed on its own; stands beside torch::nn::Module in its bases.
/// Everything such a layer yields must be a result of `forward`: a tensor that leaves by a side door, such as a loss
/// pushed into a member, loses its gradient.
struct Layer {
  virtual ~Layer() = default;
};

template <class L, class... Args>
concept CallableLayer =
    std::derived_from<L, Layer> && requires(L& layer, Args&&... args) { layer.forward(std::forward<Args>(args)...); };

/// Calls a layer and nothing else: what `SingleDevice` and `DDP` need around a layer.
struct PlainCall {
  template <class L, class Next, class... Args>
  decltype(auto) around(L&, Next&& next, Args&&... args) {
    return std::forward<Next>(next)(std::forward<Args>(args)...);
  }
};

/// What a model's `forward(run, batch)` is given: `x = run(*block, x)` for every layer that repeats.
/// `Wrap::around(layer, next, args...)` sees the call as a value and may act before, after, instead of it, or again.
template <class Wrap>
class LayerRunner {
 public:
  explicit LayerRunner(Wrap& wrap) : wrap_{&wrap} {}

  template <class L, class... Args>
    requires CallableLayer<L, Args...>
  auto operator()(L& layer, Args&&... args) {
    return wrap_->around(
        layer, [&layer](auto&&... inputs) { return layer.forward(std::forward<decltype(inputs)>(inputs)...); },
        std::forward<Args>(args)...);
  }

 private:
  Wrap* wrap_;
};

}  // namespace ddpxx
