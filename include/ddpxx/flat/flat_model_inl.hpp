// ddpxx/flat/flat_model_inl.hpp — the definitions of flat_model.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/flat/formats.hpp>
#include <ddpxx/flat/hollow.hpp>
#include <ddpxx/layers/layer.hpp>

namespace ddpxx {

DDPXX_INLINE FlatModel::FlatModel(torch::nn::Module& model, const GroupOf& group_of, const NumberFormats& formats)
    : module_{&model}, formats_{formats} {
  const auto unit_of = find_units(model);
  for (const auto& item : model.named_parameters()) {
    const auto& tensor = item.value();
    const auto same = [&](const NamedParameter& other) { return other.tensor.is_same(tensor); };
    auto& list = tensor.requires_grad() ? trainable_ : frozen_;
    if (std::any_of(list.begin(), list.end(), same)) continue;
    if (formats.parameters && tensor.requires_grad() && at::isReducedFloatingType(tensor.scalar_type()))
      throw Error{Errc::config, "parameter \"" + item.key() +
                                    "\" has 16 bits already, so that the optimizer would step it without a copy in "
                                    "float32: convert the model to float32 first, or choose the precision float32"};
    list.push_back({item.key(), tensor, unit_of.at(tensor.unsafeGetTensorImpl()),
                    group_of ? group_of(item.key(), tensor) : 0,
                    tensor.is_floating_point() ? formats.of(item.key()) : std::nullopt});
  }
  if (trainable_.empty())
    throw Error{Errc::config, "the model has no parameter that requires a gradient: there is nothing to train"};
  for (const auto& parameter : trainable_)
    if (torch::autograd::impl::post_acc_grad_hooks(parameter.tensor) != nullptr)
      throw Error{Errc::config,
                  "a trainer holds this model already: destroy that trainer first, or train a copy of the model"};
  for (const auto* list : {&trainable_, &frozen_})
    for (const auto& parameter : *list)
      if (is_hollow(parameter.tensor)) throw Error{Errc::config, hollow_sentence(parameter.name)};
  check_memory();
  for (auto* list : {&trainable_, &frozen_}) {
    std::reverse(list->begin(), list->end());
    // The root uses what it registers after its layers, such as a head, after them: its gradients come first.
    const auto last_layer = std::find_if(list->begin(), list->end(), [](const auto& p) { return p.unit != kRoot; });
    std::set<const void*> behind;
    if (last_layer != list->end())
      for (auto p = list->begin(); p != last_layer; ++p) behind.insert(p->tensor.unsafeGetTensorImpl());
    const auto key = [&](const NamedParameter& p) {
      return std::tuple{!behind.contains(p.tensor.unsafeGetTensorImpl()), -p.unit,
                        static_cast<int>(p.format.value_or(p.tensor.scalar_type())), p.group};
    };
    std::stable_sort(list->begin(), list->end(),
                     [&](const NamedParameter& a, const NamedParameter& b) { return key(a) < key(b); });
  }
}

DDPXX_INLINE void FlatModel::check_memory() const {
  // Parameters with gaps, such as the columns of a matrix, may lie between each other's elements.
  const auto bytes = [](const at::Tensor& tensor) {
    return tensor.is_non_overlapping_and_dense() ? tensor.nbytes() : tensor.itemsize();
  };
  std::map<const std::byte*, const NamedParameter*> trains;  // by the begin of their memory
  for (const auto* list : {&trainable_, &frozen_})
    for (const auto& parameter : *list) {
      const auto* const memory = parameter.tensor.numel() > 0 ? parameter.tensor.const_data_ptr() : nullptr;
      if (memory == nullptr) continue;
      const auto* const begin = static_cast<const std::byte*>(memory);
      const auto after = trains.lower_bound(begin + bytes(parameter.tensor));
      if (after != trains.begin()) {
        const auto& [other_begin, other] = *std::prev(after);
        if (other_begin + bytes(other->tensor) > begin)
          throw Error{Errc::config,
                      "parameters \"" + other->name + "\" and \"" + parameter.name +
                          "\" share memory, but a trainer gives each parameter its own, so that they would be "
                          "trained apart: register one tensor in both modules"};
      }
      if (parameter.tensor.requires_grad()) trains.emplace(begin, &parameter);
    }
}

DDPXX_INLINE std::map<const void*, int> FlatModel::find_units(const torch::nn::Module& model) {
  std::map<const void*, int> unit_of;
  int layers = 0;
  for (const auto& child : model.named_modules("", /*include_self=*/false)) {
    if (dynamic_cast<const Layer*>(child.value().get()) == nullptr) continue;
    ++layers;
    layers_.push_back(dynamic_cast<const Layer*>(child.value().get()));
    for (const auto& inner : child.value()->named_modules("", /*include_self=*/false))
      if (dynamic_cast<const Layer*>(inner.value().get()) != nullptr)
        throw Error{Errc::config, "layer \"" + child.key() + "\" contains the layer \"" + child.key() + '.' +
                                      inner.key() + "\": derive only one of the two from ddpxx::Layer"};
    for (const auto& parameter : child.value()->parameters()) {
      const auto [place, fresh] = unit_of.emplace(parameter.unsafeGetTensorImpl(), layers);
      if (!fresh && place->second != layers) place->second = kRoot;  // two layers share it
    }
  }
  return own_by_root(model, std::move(unit_of));
}

DDPXX_INLINE std::map<const void*, int> FlatModel::own_by_root(const torch::nn::Module& model,
                                                               std::map<const void*, int> unit_of) {
  const auto visit = [&](const torch::nn::Module& module, const auto& self) -> void {
    if (dynamic_cast<const Layer*>(&module) != nullptr && &module != &model) return;
    for (const auto& parameter : module.parameters(/*recurse=*/false)) unit_of[parameter.unsafeGetTensorImpl()] = kRoot;
    for (const auto& child : module.children()) self(*child, self);
  };
  visit(model, visit);
  return unit_of;
}

}  // namespace ddpxx
