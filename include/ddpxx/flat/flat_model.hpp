// ddpxx/flat/flat_model.hpp — a module's parameters laid out in flat memory, unit by unit.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/layer.hpp>

namespace ddpxx {

/// The optimizer group of a parameter, from its name and itself.
using GroupOf = std::function<int(const std::string&, const at::Tensor&)>;

/// The parameters of a model in flat memory. The layout is a pure function of the model: units (the layers, last
/// registered first; then the root, with all that no layer or more than one layer owns), inside a unit its groups,
/// inside a group the parameters, last registered first. Gradients arrive in about this order.
/// Frozen parameters (requires_grad false) have an arena of their own.
/// Errors  `config` if nothing can be trained, or a layer lies inside a layer.
class FlatModel {
 public:
  explicit FlatModel(torch::nn::Module& model, const GroupOf& group_of = {}) : module_{&model} {
    const auto unit_of = find_units(model);
    std::vector<NamedParameter> trainable, frozen;
    for (const auto& item : model.named_parameters()) {
      const auto& tensor = item.value();
      const auto same = [&](const NamedParameter& other) { return other.tensor.is_same(tensor); };
      auto& list = tensor.requires_grad() ? trainable : frozen;
      if (std::any_of(list.begin(), list.end(), same)) continue;
      list.push_back(
          {item.key(), tensor, unit_of.at(tensor.unsafeGetTensorImpl()), group_of ? group_of(item.key(), tensor) : 0});
    }
    if (trainable.empty())
      throw Error{Errc::config, "the model has no parameter that requires a gradient: there is nothing to train"};
    for (auto* list : {&trainable, &frozen}) {
      std::reverse(list->begin(), list->end());
      std::stable_sort(list->begin(), list->end(), [](const NamedParameter& a, const NamedParameter& b) {
        return std::pair{-a.unit, a.group} < std::pair{-b.unit, b.group};
      });
    }
    trainable_ = Arena{trainable};
    frozen_ = Arena{frozen, Gradients::none};
  }

  torch::nn::Module& module() const noexcept { return *module_; }
  Arena& trainable() noexcept { return trainable_; }
  const Arena& trainable() const noexcept { return trainable_; }
  const Arena& frozen() const noexcept { return frozen_; }
  std::vector<at::Tensor> buffers() const { return module_->buffers(); }

 private:
  static constexpr int kRoot = 0;

  /// Unit number of every parameter: layers count from 1 in order of registration.
  static std::map<const void*, int> find_units(const torch::nn::Module& model) {
    std::map<const void*, int> unit_of;
    int layers = 0;
    for (const auto& child : model.named_modules("", /*include_self=*/false)) {
      if (dynamic_cast<const Layer*>(child.value().get()) == nullptr) continue;
      ++layers;
      for (const auto& inner : child.value()->modules(/*include_self=*/false))
        if (dynamic_cast<const Layer*>(inner.get()) != nullptr)
          throw Error{Errc::config, "layer \"" + child.key() + "\" contains another layer: tag only one of them"};
      for (const auto& parameter : child.value()->parameters()) {
        const auto [place, fresh] = unit_of.emplace(parameter.unsafeGetTensorImpl(), layers);
        if (!fresh && place->second != layers) place->second = kRoot;  // shared by two layers
      }
    }
    return own_by_root(model, std::move(unit_of));
  }

  /// What is not inside a layer, or is used outside of one as well, is the root's.
  static std::map<const void*, int> own_by_root(const torch::nn::Module& model, std::map<const void*, int> unit_of) {
    const auto visit = [&](const torch::nn::Module& module, const auto& self) -> void {
      if (dynamic_cast<const Layer*>(&module) != nullptr && &module != &model) return;
      for (const auto& parameter : module.parameters(/*recurse=*/false))
        unit_of[parameter.unsafeGetTensorImpl()] = kRoot;
      for (const auto& child : module.children()) self(*child, self);
    };
    visit(model, visit);
    return unit_of;
  }

  torch::nn::Module* module_;
  Arena trainable_;
  Arena frozen_;
};

}  // namespace ddpxx
