// ddpxx/parallel/layer_units.hpp — which layers of a model are gathered together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ddpxx/flat/flat_model.hpp>
#include <ddpxx/layers/layer.hpp>

namespace ddpxx {

/// The units into which FSDP puts the layers of a model, a pure function of the model and `unit_bytes`. Layers that
/// follow each other share a unit until it has so many bytes. A layer with nothing to train has its own, since it gets
/// no gradients after which it could be freed. Unit 0 is the root: the parameters that belong to no layer.
class LayerUnits {
 public:
  /// A call of a layer, by numbers; layers count from 1.
  struct Call {
    std::size_t unit;
    std::size_t layer;
  };

  LayerUnits() = default;
  LayerUnits(const FlatModel& model, std::int64_t unit_bytes);

  /// Number of units, with the root.
  std::size_t size() const { return static_cast<std::size_t>(unit_of_layer_.back()) + 1; }
  /// The parameters of the model, each with the number of its unit.
  std::vector<NamedParameter> in_units(std::vector<NamedParameter> parameters) const;
  /// The calls of those of `layers` that the model has, in their order.
  std::vector<Call> calls_of(Layers layers) const;
  /// "the root", "layer 1" or "layers 2 to 4".
  std::string name_of(std::size_t unit) const;

 private:
  std::vector<int> unit_of_layer_{
      FlatModel::kRoot};  ///< The unit of each layer, counted from 1; at 0 that of the root.
  std::map<const Layer*, std::size_t> layer_index_;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/parallel/layer_units_inl.hpp>
#endif
