// ddpxx/layers/recompute_inl.hpp — the functions of recompute.hpp that are not templates. Only they need the header
// of autograd's custom functions, which takes a second to compile.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/GradMode.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/layers/autocast_state.hpp>
#include <ddpxx/layers/buffer_state.hpp>
#include <ddpxx/layers/changes_in_place.hpp>
#include <ddpxx/layers/has_hook.hpp>
#include <ddpxx/layers/layer.hpp>
#include <ddpxx/layers/random_state.hpp>
#include <ddpxx/layers/recompute.hpp>

namespace ddpxx::detail {

using torch::autograd::AutogradContext;

DDPXX_INLINE variable_list trainable_parameters(Layers layers) {
  variable_list parameters;
  for (const auto* layer : layers)
    for (const auto& item : dynamic_cast<const torch::nn::Module&>(*layer).named_parameters()) {
      const auto& parameter = item.value();
      if (!parameter.requires_grad() || std::any_of(parameters.begin(), parameters.end(),
                                                    [&](const at::Tensor& other) { return other.is_same(parameter); }))
        continue;
      if (has_hook(parameter))
        throw Error{Errc::config, "parameter \"" + item.key() +
                                      "\" of a recomputed layer has a hook from register_hook(), which would run in "
                                      "the layer's second run too: change gradients in before_optimizer_step (of "
                                      "TrainStep or of an Observer), or register the hook on an activation"};
      parameters.push_back(parameter);
    }
  return parameters;
}

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
        {torch::autograd::impl::gradient_edge(kept.result)}, gradients, call.keeps_graph, /*create_graph=*/false,
        /*accumulate_grad=*/false, kept.edges);
    variable_list all{{}, {}};
    std::size_t k = 0;
    // Integers have no gradient, and an undefined tensor is not an input of the node.
    for (const auto& input : kept.inputs)
      if (input.defined()) all.push_back(input.requires_grad() ? found[k++] : at::Tensor{});
    for (std::size_t i = 0; i < call.parameters.size(); ++i) all.push_back(found[k++]);
    if (!call.keeps_graph) kept = {};
    return all;
  }
};

/// How often each of the tensors was changed in place.
inline std::vector<std::int64_t> changes_in_place(const variable_list& tensors) {
  std::vector<std::int64_t> all;
  for (const auto& tensor : tensors) all.push_back(changes_in_place(tensor));
  return all;
}

class RecomputeFunction : public torch::autograd::Function<RecomputeFunction> {
 public:
  /// `tensors` are the call's inputs, then its parameters.
  static variable_list forward(AutogradContext* context, const c10::intrusive_ptr<RecomputedCall>& call,
                               at::TensorList tensors) {
    const auto inputs = tensors.slice(0, tensors.size() - call->parameters.size()).vec();
    const auto before = changes_in_place(inputs);
    auto results = call->run(inputs);
    if (changes_in_place(inputs) != before)
      throw Error{
          Errc::config,
          "a recomputed layer changed an argument in place, and its second run would change it again: let it work "
          "on a copy"};
    for (const auto& kept : call->kept)
      if (changes_in_place(kept.result) != kept.changes)
        throw Error{Errc::config,
                    "a recomputed layer changed a result of run.keep in place, and its second run would change it "
                    "again: let it work on a copy"};
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
    if (c10::GradMode::is_enabled())
      throw Error{
          Errc::config,
          "a recomputed layer has no second derivative: call backward without create_graph, or do not recompute"};
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
      call.keeps_graph = torch::autograd::get_current_graph_task_keep_graph();
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

DDPXX_INLINE variable_list recomputed(const c10::intrusive_ptr<RecomputedCall>& call, at::TensorList tensors) {
  return RecomputeFunction::apply(call, tensors);
}

DDPXX_INLINE at::Tensor kept_work(const c10::intrusive_ptr<RecomputedCall>& call, std::size_t i,
                                  at::TensorList tensors) {
  const auto& result = call->kept.at(i).result;
  if (!result.requires_grad()) return detached(result);  // its work has no graph in which backward could run
  return KeptWork::apply(call, static_cast<std::int64_t>(i), tensors);
}

}  // namespace ddpxx::detail
