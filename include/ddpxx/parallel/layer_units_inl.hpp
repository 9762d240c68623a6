// ddpxx/parallel/layer_units_inl.hpp — definitions of layer_units.hpp; ddpxx/core/inline.hpp says how they are
// compiled.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <ddpxx/core/inline.hpp>
#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/layers/layer.hpp>
#include <ddpxx/parallel/layer_units.hpp>

namespace ddpxx {

DDPXX_INLINE LayerUnits::LayerUnits(const FlatModel& model, std::int64_t unit_bytes) {
  std::vector<std::int64_t> bytes(model.layers().size() + 1);
  std::vector<bool> trains(bytes.size(), false);
  for (const auto* list : {&model.trainable(), &model.frozen()})
    for (const auto& parameter : *list) {
      const auto layer = static_cast<std::size_t>(parameter.unit);
      bytes[layer] += static_cast<std::int64_t>(parameter.tensor.nbytes());
      if (list == &model.trainable()) trains[layer] = true;
    }
  std::int64_t in_unit = 0;
  for (std::size_t layer = 1; layer < bytes.size(); ++layer) {
    layer_index_[model.layers()[layer - 1]] = layer;
    const bool joins = layer > 1 && trains[layer] && trains[layer - 1] && in_unit < unit_bytes;
    unit_of_layer_.push_back(joins ? unit_of_layer_.back() : unit_of_layer_.back() + 1);
    in_unit = (joins ? in_unit : 0) + bytes[layer];
  }
}

DDPXX_INLINE std::vector<NamedParameter> LayerUnits::in_units(std::vector<NamedParameter> parameters) const {
  for (auto& parameter : parameters) parameter.unit = unit_of_layer_[static_cast<std::size_t>(parameter.unit)];
  return parameters;
}

DDPXX_INLINE std::vector<LayerUnits::Call> LayerUnits::calls_of(Layers layers) const {
  std::vector<Call> calls;
  for (const auto* layer : layers)
    if (const auto found = layer_index_.find(layer); found != layer_index_.end())
      calls.push_back({static_cast<std::size_t>(unit_of_layer_[found->second]), found->second});
  return calls;
}

DDPXX_INLINE std::string LayerUnits::name_of(std::size_t unit) const {
  if (unit == static_cast<std::size_t>(FlatModel::kRoot)) return "the root";
  const auto [first, last] = std::equal_range(unit_of_layer_.begin(), unit_of_layer_.end(), static_cast<int>(unit));
  const auto from = std::to_string(first - unit_of_layer_.begin()),
             to = std::to_string(last - unit_of_layer_.begin() - 1);
  return from == to ? "layer " + from : "layers " + from + " to " + to;
}

}  // namespace ddpxx
