// ddpxx/layers/recompute.hpp — activation checkpointing: runs layers without saving activations, and again in the
// backward pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/GradMode.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/variable.h>

#include <ddpxx/layers/autocast_state.hpp>
#include <ddpxx/layers/buffer_state.hpp>
#include <ddpxx/layers/changes_in_place.hpp>
#include <ddpxx/layers/layer.hpp>
#include <ddpxx/layers/random_state.hpp>
#include <ddpxx/layers/tensors_in.hpp>

namespace ddpxx {

namespace detail {

using torch::autograd::variable_list;

/// The tensor without its graph; an undefined tensor, which stands for an absent argument, stays undefined.
inline at::Tensor detached(const at::Tensor& tensor) { return tensor.defined() ? tensor.detach() : tensor; }

/// The parameters of `layers` that require gradients, each once.
variable_list trainable_parameters(Layers layers);

/// A result that `run.keep` has saved, with the graph of its gradient.
struct Kept {
  variable_list inputs;                      ///< Leaves that stand for the arguments of the work.
  std::vector<torch::autograd::Edge> edges;  ///< Edges at which the gradients of inputs and parameters are captured.
  at::Tensor result;
  std::int64_t changes;  ///< How often the result was changed in place when the work returned it.
  RandomStates random_after;
};

/// One recomputed call: everything that its second run needs, except the input tensors.
struct RecomputedCall : torch::CustomClassHolder {
  std::function<variable_list(const variable_list&)> run;
  variable_list parameters;
  std::vector<Kept> kept;
  std::size_t next_kept = 0;
  bool again = false;        ///< This is the second run, or a later one.
  bool keeps_graph = false;  ///< The backward pass that runs keeps its graph: another one may follow.
  at::Device device = at::kCPU;
  RandomStates random;
  BufferStates buffers;
  AutocastState autocast;
};

/// Runs the call on `tensors`, its inputs and then its parameters, as one node of the graph. Its backward runs the call
/// again.
variable_list recomputed(const c10::intrusive_ptr<RecomputedCall>& call, at::TensorList tensors);

/// Replaces the call's kept work `i` in the second run. `tensors` are the defined inputs of the work, then the
/// parameters of the call. A kept result that depends on none of them has no gradient.
at::Tensor kept_work(const c10::intrusive_ptr<RecomputedCall>& call, std::size_t i, at::TensorList tensors);

}  // namespace detail

/// Activation checkpointing: `around` runs a layer without saving activations, and runs it again in backward. Arguments
/// are copied. With gradients disabled the layer is called directly. The second run uses the random numbers, the
/// buffers, the autocast state and the kept work of the first run, so that dropout draws an equal mask. Afterwards the
/// buffers have their values from before, so that a running mean counts each batch once; for that, each call keeps a
/// copy of its layers' buffers until its backward.
/// Errors  `config` where the second run would compute something else: for an argument or a kept result that the layer
///         changes in place, for a parameter with a hook from register_hook(), and for a second derivative.
/// Source  Chen et al. 2016, arXiv:1604.06174; results equal torch.utils.checkpoint's, except for changed buffers.
class RecomputeCall {
 public:
  template <class Next, class... Args>
  auto around(Layers layers, Next next, Args&&... args) {
    using Result = std::decay_t<decltype(next(std::forward<Args>(args)...))>;
    static_assert(shows_its_tensors<Result>,
                  "a layer that is recomputed yields tensors, or tuples, pairs, arrays, vectors and optionals of them: "
                  "in a type of its own they would lose their gradients");
    static_assert(
        (shows_its_tensors<std::decay_t<Args>> && ...),
        "a layer that is recomputed takes tensors, tuples, pairs, arrays, vectors and optionals of them, "
        "numbers and strings: a tensor in a type of its own, behind a pointer or in a tuple of references would lose "
        "its gradient. For a type without such tensors, specialise ddpxx::shows_its_tensors to true");
    if (!at::GradMode::is_enabled()) return Result{next(std::forward<Args>(args)...)};

    auto call = c10::make_intrusive<detail::RecomputedCall>();
    call->parameters = detail::trainable_parameters(layers);
    auto hollow = std::make_shared<std::tuple<std::decay_t<Args>...>>(std::forward<Args>(args)...);
    std::vector<at::Tensor> tensors;
    each_tensor(*hollow, [&](at::Tensor& tensor) {
      tensors.push_back(tensor);
      tensor = tensor.new_empty({0});  // the capsule must hold no tensor of the graph
    });
    for (const auto* list : {&tensors, &call->parameters})  // a layer may have no tensor among its arguments
      for (const auto& tensor : *list)
        if (!tensor.is_cpu()) call->device = tensor.device();
    call->random = random_states(call->device);
    call->buffers = buffer_states(layers);
    call->autocast = AutocastState::of(call->device.type());

    auto shape = std::make_shared<std::optional<Result>>();
    call->run = [call = call.get(), hollow, shape, next](const std::vector<at::Tensor>& inputs) mutable {
      auto filled = *hollow;
      std::size_t k = 0;
      each_tensor(filled, [&](at::Tensor& tensor) { tensor = inputs[k++]; });
      const CallScope scope{call};
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
    const auto outputs = detail::recomputed(call, tensors);
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
      detail::Kept kept{{detail::detached(inputs)...}, {}, {}, 0, {}};
      for (auto& input : kept.inputs)
        if (input.defined() && torch::autograd::isDifferentiableType(input.scalar_type()))
          input.set_requires_grad(true);
      std::size_t i = 0;
      const std::tuple leaves{(static_cast<void>(inputs), kept.inputs[i++])...};
      {
        const CallScope inside{nullptr};  // what the work keeps itself is within its own result
        kept.result = std::apply(work, leaves);
      }
      kept.changes = detail::changes_in_place(kept.result);
      for (const auto& input : kept.inputs)
        if (input.requires_grad()) kept.edges.push_back(torch::autograd::impl::gradient_edge(input));
      for (const auto& parameter : call->parameters)
        kept.edges.push_back(torch::autograd::impl::gradient_edge(parameter));
      kept.random_after = random_states(call->device);
      call->kept.push_back(kept);
      return detail::detached(kept.result);
    }
    const auto i = call->next_kept++;
    set_random_states(call->kept.at(i).random_after);
    std::vector<at::Tensor> tensors;
    const auto all = std::tie(inputs...);
    each_tensor(all, [&](const at::Tensor& input) { tensors.push_back(input); });
    tensors.insert(tensors.end(), call->parameters.begin(), call->parameters.end());
    return detail::kept_work(call, i, tensors);
  }

 private:
  /// The call whose layers run on this thread; backward may run layers on another thread than forward.
  static inline thread_local detail::RecomputedCall* call_ = nullptr;

  /// Makes `call` that of this thread while this object lives.
  struct CallScope {
    explicit CallScope(detail::RecomputedCall* call) : outer{std::exchange(call_, call)} {}
    CallScope(const CallScope&) = delete;
    CallScope& operator=(const CallScope&) = delete;
    ~CallScope() { call_ = outer; }
    detail::RecomputedCall* outer;
  };
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/layers/recompute_inl.hpp>
#endif
