// ddpxx/train/unregistered_leaf_inl.hpp — definitions of unregistered_leaf.hpp; ddpxx/core/inline.hpp says how they are
// compiled.
#pragma once

#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/nn/module.h>

#include <ddpxx/train/unregistered_leaf.hpp>

namespace ddpxx::detail {

DDPXX_INLINE at::Tensor unregistered_leaf(const at::Tensor& loss, const torch::nn::Module& model) {
  std::unordered_set<const at::TensorImpl*> parameters;
  for (const auto& parameter : model.parameters()) parameters.insert(parameter.unsafeGetTensorImpl());
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<const torch::autograd::Node*> to_visit{loss.grad_fn().get()};
  while (!to_visit.empty()) {
    const auto* node = to_visit.back();
    to_visit.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node);
    if (leaf != nullptr && !parameters.contains(leaf->variable.unsafeGetTensorImpl())) return leaf->variable;
    for (const auto& edge : node->next_edges()) to_visit.push_back(edge.function.get());
  }
  return {};
}

}  // namespace ddpxx::detail
