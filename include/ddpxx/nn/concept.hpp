// ddpxx/nn/concept.hpp — what a model must provide for a trainer.
#pragma once

#include <concepts>
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <ddpxx/layers/layer.hpp>
#include <ddpxx/nn/loss.hpp>

namespace ddpxx {

template <class M>
concept IsModule = std::derived_from<M, torch::nn::Module>;
/// A model that calls its layers through the runner, so that a strategy can act before and after each layer.
template <class M, class Run, class Batch>
concept LayeredModel = requires(M& model, Run& run, const Batch& batch) {
  { model.forward(run, batch) } -> std::same_as<Loss>;
};
/// A model with an ordinary forward: the whole model is one unit.
template <class M, class Batch>
concept OrdinaryModel = requires(M& model, const Batch& batch) {
  { model.forward(batch) } -> std::same_as<Loss>;
};
template <class M, class Batch>
concept ComputesLoss = LayeredModel<M, LayerRunner<PlainCall>, Batch> || OrdinaryModel<M, Batch>;

template <class M, class Batch>
concept TrainableModel = IsModule<M> && ComputesLoss<M, Batch>;

/// The holder that TORCH_MODULE(Net) makes for NetImpl: a pointer, not a module.
template <class M>
concept IsModuleHolder = !IsModule<M> && requires(const M& holder) { holder.ptr(); };

template <class M, class Batch>
consteval bool explain_model() {
  static_assert(
      !IsModuleHolder<M>,
      "model: this is a holder that TORCH_MODULE(Net) made: name the module, as in Trainer<NetImpl, ...>, and "
      "pass net.ptr()");
  static_assert(IsModule<M> || IsModuleHolder<M>, "model: derive it from torch::nn::Module");
  static_assert(ComputesLoss<M, Batch>,
                "model: add `template <class Run> Loss forward(Run& run, const Batch& batch)`, "
                "or an ordinary `Loss forward(const Batch& batch)`");
  return true;
}

/// Optional: a model that knows which of its parameters decay. In other models, parameters with two or more dimensions
/// decay.
template <class M>
concept KnowsDecay = requires(const M& model, const std::string& name, const at::Tensor& parameter) {
  { model.decays(name, parameter) } -> std::same_as<bool>;
};

/// The loss of a batch, by either kind of forward.
template <class M, class Run, class Batch>
Loss compute_loss(M& model, Run& run, const Batch& batch) {
  if constexpr (LayeredModel<M, Run, Batch>)
    return model.forward(run, batch);
  else
    return model.forward(batch);
}

}  // namespace ddpxx
