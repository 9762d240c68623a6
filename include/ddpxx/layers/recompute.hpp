// ddpxx/layers/recompute.hpp — activation checkpointing: runs layers without saving activations, and again in the
// backward pass.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <ddpxx/layers/autocast_state.hpp>
#include <ddpxx/layers/buffer_state.hpp>
#include <ddpxx/layers/layer.hpp>
#include <ddpxx/layers/random_state.hpp>
#include <ddpxx/layers/tensors_in.hpp>

namespace ddpxx {

namespace detail {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The parameters of `layers` that require gradients, each once.
inline variable_list trainable_parameters(Layers layers) {
  variable_list parameters;
  for (const auto* layer : layers)
    for (const auto& parameter : dynamic_cast<const torch::nn::Module&>(*layer).parameters())
      if (parameter.requires_grad() && std::none_of(parameters.begin(), parameters.end(),
                                                    [&](const at::Tensor& other) { return other.is_same(parameter); }))
        parameters.push_back(parameter);
  return parameters;
}

/// A result that `run.keep` has saved, with the graph of its gradient.
struct Kept {
  variable_list inputs;              ///< Leaves that stand for the arguments of the work.
  torch::autograd::edge_list edges;  ///< Edges at which the gradients of inputs and parameters are captured.
  at::Tensor result;
  RandomStates random_after;
};

/// One recomputed call: everything that its second run needs, except the input tensors.
struct RecomputedCall : torch::CustomClassHolder {
  std::function<variable_list(const variable_list&)> run;
  variable_list parameters;
  std::vector<Kept> kept;
  std::size_t next_kept = 0;
  bool again = false;  ///< This is the second run.
  at::Device device = at::kCPU;
  RandomStates random;
  BufferStates buffers;
  AutocastState autocast;
};

/// Replaces kept work in the second run: forward returns the saved result, backward computes its gradient.
class KeptWork : public torch::autograd::Function<KeptWork> {
 public:
  static at::Tensor forward(AutogradContext* context, const c10::intrusive_ptr<RecomputedCall>& call, std::int64_t i,
                            at::TensorList) {
    context->saved_data["call"] = at::IValue::make_capsule(call);
    context->saved_data["i"] = i;
    return call->kept[static_cast<std::size_t>(i)].result.detach();
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data["call"].toCapsule();
    auto& call = static_cast<RecomputedCall&>(*capsule);
    auto& kept = call.kept[static_cast<std::size_t>(context->saved_data["i"].toInt())];
    // Gradients are captured at edges, not tensors: if a layer runs twice, FSDP has replaced its parameters' nodes.
    const auto found = torch::autograd::Engine::get_default_engine().execute(
        {torch::autograd::impl::gradient_edge(kept.result)}, gradients, /*keep_graph=*/false, /*create_graph=*/false,
        /*accumulate_grad=*/false, kept.edges);
    variable_list all{{}, {}};
    std::size_t k = 0;
    for (const auto& input : kept.inputs)  // integers have no gradient
      all.push_back(input.requires_grad() ? found[k++] : at::Tensor{});
    for (std::size_t i = 0; i < call.parameters.size(); ++i) all.push_back(found[k++]);
    kept = {};
    return all;
  }
};

class RecomputeFunction : public torch::autograd::Function<RecomputeFunction> {
 public:
  /// `tensors` are the call's inputs, then its parameters.
  static variable_list forward(AutogradContext* context, const c10::intrusive_ptr<RecomputedCall>& call,
                               at::TensorList tensors) {
    const auto inputs = tensors.slice(0, tensors.size() - call->parameters.size()).vec();
    auto results = call->run(inputs);
    context->saved_data["call"] = at::IValue::make_capsule(call);
    context->save_for_backward(inputs);
    context->set_materialize_grads(false);
    variable_list integers;
    for (const auto& result : results)
      if (!torch::autograd::isDifferentiableType(result.scalar_type())) integers.push_back(result);
    context->mark_non_differentiable(integers);
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data["call"].toCapsule();
    auto& call = static_cast<RecomputedCall&>(*capsule);
    variable_list inputs;
    for (const auto& saved : context->get_saved_variables())
      inputs.push_back(saved.detach().set_requires_grad(saved.requires_grad()));
    // The scope lasts until the end of this backward pass, which may read a buffer that the second run has saved.
    const BufferScope buffers{call.buffers};
    variable_list results;
    {
      const at::AutoGradMode with_grad{true};
      const RandomScope random{call.random};
      const AutocastScope autocast{call.autocast};
      call.again = true;
      call.next_kept = 0;
      results = call.run(inputs);
    }
    variable_list outputs, seeds, targets;
    for (std::size_t i = 0; i < results.size(); ++i)
      if (gradients[i].defined() && results[i].requires_grad()) {
        outputs.push_back(results[i]);
        seeds.push_back(gradients[i]);
      }
    for (const auto& input : inputs)
      if (input.requires_grad()) targets.push_back(input);
    targets.insert(targets.end(), call.parameters.begin(), call.parameters.end());
    variable_list found(targets.size());
    if (!outputs.empty() && !targets.empty())
      found = torch::autograd::grad(outputs, targets, seeds, /*retain_graph=*/false, /*create_graph=*/false,
                                    /*allow_unused=*/true);
    variable_list all{{}};
    std::size_t k = 0;
    for (const auto& input : inputs) all.push_back(input.requires_grad() ? found[k++] : at::Tensor{});
    for (std::size_t i = 0; i < call.parameters.size(); ++i) all.push_back(found[k++]);
    return all;
  }
};

}  // namespace detail

/// Activation checkpointing: `around` runs a layer without saving activations, and runs it again in backward. Arguments
/// are copied. With gradients disabled the layer is called directly. The second run uses the random numbers, the
/// buffers, the autocast state and the kept work of the first run, so that dropout draws an equal mask. Afterwards the
/// buffers have their values from before, so that a running mean counts each batch once; for that, each call keeps a
/// copy of its layers' buffers until its backward.
/// Source  Chen et al. 2016, arXiv:1604.06174; results equal torch.utils.checkpoint's, except for changed buffers.
class RecomputeCall {
 public:
  template <class Next, class... Args>
  auto around(Layers layers, Next next, Args&&... args) {
    using Result = std::decay_t<decltype(next(std::forward<Args>(args)...))>;
    static_assert(shows_its_tensors<Result>,
                  "a layer that is recomputed yields tensors, or tuples, pairs, arrays, vectors and optionals of them: "
                  "in a type of its own they would lose their gradients");
    if (!at::GradMode::is_enabled()) return Result{next(std::forward<Args>(args)...)};

    auto call = c10::make_intrusive<detail::RecomputedCall>();
    call->parameters = detail::trainable_parameters(layers);
    auto hollow = std::make_shared<std::tuple<std::decay_t<Args>...>>(std::forward<Args>(args)...);
    std::vector<at::Tensor> tensors;
    each_tensor(*hollow, [&](at::Tensor& tensor) {
      tensors.push_back(tensor);
      tensor = tensor.new_empty({0});  // the capsule must hold no tensor of the graph
    });
    for (const auto& tensor : tensors)
      if (!tensor.is_cpu()) call->device = tensor.device();
    call->random = random_states(call->device);
    call->buffers = buffer_states(layers);
    call->autocast = AutocastState::of(call->device.type());

    auto shape = std::make_shared<std::optional<Result>>();
    call->run = [call = call.get(), hollow, shape, next](const std::vector<at::Tensor>& inputs) mutable {
      auto filled = *hollow;
      std::size_t k = 0;
      each_tensor(filled, [&](at::Tensor& tensor) { tensor = inputs[k++]; });
      const auto outer = std::exchange(call_, call);
      struct PutBack {
        detail::RecomputedCall*& place;
        detail::RecomputedCall* value;
        ~PutBack() { place = value; }
      } const put_back{call_, outer};
      auto result = std::apply(next, std::move(filled));
      std::vector<at::Tensor> outputs;
      each_tensor(result, [&](at::Tensor& tensor) {
        outputs.push_back(tensor);
        tensor = tensor.new_empty({0});
      });
      *shape = std::move(result);
      return outputs;
    };

    tensors.insert(tensors.end(), call->parameters.begin(), call->parameters.end());
    const auto outputs = detail::RecomputeFunction::apply(call, at::TensorList{tensors});
    Result result = std::move(**shape);
    each_tensor(result, [&, k = std::size_t{0}](at::Tensor& tensor) mutable { tensor = outputs[k++]; });
    return result;
  }

  template <class Work, class... Inputs>
  at::Tensor keep(Work& work, const Inputs&... inputs) {
    if (call_ == nullptr) return work(inputs...);
    auto call = c10::intrusive_ptr<detail::RecomputedCall>::reclaim_copy(call_);
    if (!call->again) {
      const at::AutoGradMode with_grad{true};
      detail::Kept kept{{inputs.detach()...}, {}, {}, {}};
      for (auto& input : kept.inputs)
        if (torch::autograd::isDifferentiableType(input.scalar_type())) input.set_requires_grad(true);
      std::size_t i = 0;
      const std::tuple leaves{(static_cast<void>(inputs), kept.inputs[i++])...};
      kept.result = std::apply(work, leaves);
      for (const auto& input : kept.inputs)
        if (input.requires_grad()) kept.edges.push_back(torch::autograd::impl::gradient_edge(input));
      for (const auto& parameter : call->parameters)
        kept.edges.push_back(torch::autograd::impl::gradient_edge(parameter));
      kept.random_after = random_states(call->device);
      call->kept.push_back(kept);
      return kept.result.detach();
    }
    const auto i = call->next_kept++;
    set_random_states(call->kept.at(i).random_after);
    std::vector<at::Tensor> tensors{inputs...};
    tensors.insert(tensors.end(), call->parameters.begin(), call->parameters.end());
    return detail::KeptWork::apply(call, static_cast<std::int64_t>(i), at::TensorList{tensors});
  }

 private:
  /// The call whose layers run on this thread; backward may run layers on another thread than forward.
  static inline thread_local detail::RecomputedCall* call_ = nullptr;
};

}  // namespace ddpxx
