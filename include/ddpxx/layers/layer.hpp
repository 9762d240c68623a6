// ddpxx/layers/layer.hpp — the layers of a model as the strategies see them, and the runner that calls them.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace ddpxx {

/// Tag of a layer that may be sharded or recomputed on its own: a second base class beside torch::nn::Module.
/// Such a layer returns all its outputs from `forward`, and uses only tensors that are arguments or parameters of its
/// own. Other tensors, such as a loss stored in a member or a bias of the model, lose their gradients without an error.
struct Layer {
  virtual ~Layer() = default;
};

/// The layers that one call runs, in order; usually one.
using Layers = std::span<const Layer* const>;

/// Calls layers and does nothing around the call: for `SingleDevice` and `DDP`.
struct PlainCall {
  template <class Next, class... Args>
  decltype(auto) around(Layers, Next&& next, Args&&... args) {
    return std::forward<Next>(next)(std::forward<Args>(args)...);
  }
};

/// A layer whose `forward` takes the runner, to call `run.keep`.
template <class L, class Run, class... Args>
concept CallableWithRunner =
    requires(L& layer, Run& run, Args&&... args) { layer.forward(run, std::forward<Args>(args)...); };
template <class L, class Run, class... Args>
concept CallableLayer =
    std::derived_from<L, Layer> && (CallableWithRunner<L, Run, Args...> ||
                                    requires(L& layer, Args&&... args) { layer.forward(std::forward<Args>(args)...); });

/// A model whose `forward(run, batch)` calls its layers through a runner of type `Run`.
template <class M, class Run, class Batch>
concept RunsLayers = requires(M& model, Run& run, const Batch& batch) { model.forward(run, batch); };

/// Optional function of a runner's `Wrap`: `std::size_t segment_end(std::size_t first, std::size_t layers)`,
/// for a strategy that runs several layers of a row in one call. For a call that begins with layer `first` of a row of
/// `layers`, it returns the index behind the call's last layer.
template <class Wrap>
concept CutsRows = requires(Wrap& wrap, std::size_t first, std::size_t layers) {
  { wrap.segment_end(first, layers) } -> std::same_as<std::size_t>;
};

/// Optional function of a runner's `Wrap`: `at::Tensor keep(Work& work, const Inputs&... inputs)`, for a
/// strategy that runs layers again. It returns work(inputs...), or in the second run the result of the first.
template <class Wrap, class Work, class... Inputs>
concept KeepsResults = requires(Wrap& wrap, Work& work, const Inputs&... inputs) {
  { wrap.keep(work, inputs...) } -> std::same_as<at::Tensor>;
};

namespace detail {
template <class L>
inline constexpr bool kIsRow = false;
template <class L>
inline constexpr bool kIsRow<std::vector<std::shared_ptr<L>>> = std::derived_from<L, Layer>;
}  // namespace detail

/// The `run` of a model's `forward(run, batch)`: the model calls each repeated layer by `x = run(*block, x)`, or a row
/// of layers by `x = run(blocks, x)`. `Wrap::around(layers, next, args...)` receives the call as a callable and may act
/// before and after it, or repeat it.
template <class Wrap>
class LayerRunner {
 public:
  explicit LayerRunner(Wrap& wrap) : wrap_{&wrap} {}

  template <class L, class... Args>
    requires CallableLayer<L, LayerRunner, Args...>
  auto operator()(L& layer, Args&&... args) {
    const Layer* const one[] = {&layer};
    return wrap_->around(
        Layers{one},
        [run = *this, &layer](auto&&... inputs) mutable {
          return run.call(layer, std::forward<decltype(inputs)>(inputs)...);
        },
        std::forward<Args>(args)...);
  }

  /// Runs the layers in order, each on the result of the layer before it.
  template <class L>
    requires CallableLayer<L, LayerRunner, at::Tensor&>
  at::Tensor operator()(const std::vector<std::shared_ptr<L>>& layers, at::Tensor x) {
    if constexpr (CutsRows<Wrap>) {
      for (std::size_t first = 0; first < layers.size();) {
        const auto end = wrap_->segment_end(first, layers.size());
        x = run_segment<L>(
            {layers.begin() + static_cast<std::ptrdiff_t>(first), layers.begin() + static_cast<std::ptrdiff_t>(end)},
            x);
        first = end;
      }
    } else {
      for (const auto& layer : layers) x = (*this)(*layer, x);
    }
    return x;
  }

  /// Fails to compile for other arguments, with a sentence that says why.
  template <class L, class... Args>
    requires(!CallableLayer<L, LayerRunner, Args...> && !detail::kIsRow<std::remove_const_t<L>>)
  at::Tensor operator()(L&, Args&&...) {
    static_assert(
        std::derived_from<L, Layer>,
        "run(layer, x): this is not a layer: derive it from ddpxx::Layer beside torch::nn::Module; for layers "
        "in a row pass a std::vector of std::shared_ptr to such layers, not a torch::nn::Sequential");
    static_assert(!std::derived_from<L, Layer>, "run(layer, x): this layer has no forward for these arguments");
    return {};
  }

  /// Inside a layer: calls `work(inputs...)` and, where the strategy recomputes the layer, keeps the result: the second
  /// run reuses it and only computes its gradient.
  /// Shapes  any number of tensors in, one out; `work` uses no other tensor but the layer's parameters.
  template <class Work, class... Inputs>
  at::Tensor keep(Work&& work, const Inputs&... inputs) {
    if constexpr (KeepsResults<Wrap, Work, Inputs...>)
      return wrap_->keep(work, inputs...);
    else
      return work(inputs...);
  }

 private:
  template <class L, class... Args>
  auto call(L& layer, Args&&... args) {
    if constexpr (CallableWithRunner<L, LayerRunner, Args...>)
      return layer.forward(*this, std::forward<Args>(args)...);
    else
      return layer.forward(std::forward<Args>(args)...);
  }

  /// The callable owns its layers: backward may call it after the caller's list is destroyed.
  template <class L>
  at::Tensor run_segment(std::vector<std::shared_ptr<L>> layers, const at::Tensor& x) {
    std::vector<const Layer*> all;
    for (const auto& layer : layers) all.push_back(layer.get());
    return wrap_->around(
        Layers{all},
        [run = *this, layers](at::Tensor y) mutable {
          for (const auto& layer : layers) y = run.call(*layer, y);
          return y;
        },
        x);
  }

  Wrap* wrap_;
};

}  // namespace ddpxx
