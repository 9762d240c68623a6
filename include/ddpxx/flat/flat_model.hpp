// ddpxx/flat/flat_model.hpp — a module's parameters in the order in which flat memory holds them, unit by unit.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <torch/nn/module.h>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/flat/formats.hpp>
#include <ddpxx/layers/layer.hpp>

namespace ddpxx {

/// A function that chooses the optimizer group of a parameter, given its name and the parameter.
using GroupOf = std::function<int(const std::string&, const at::Tensor&)>;

/// The parameters of a model in the order in which an arena holds them, a pure function of the model. First come the
/// parameters that the root registers after its layers, then the layers, last registered first, then the other
/// parameters of the root and those that several layers share. A unit is sorted by format, a format by group, and a
/// group has the parameter that was registered last first. Gradients arrive in about this order. Frozen parameters
/// (requires_grad false) have a list of their own. A strategy decides what to hold in which memory.
/// `formats` apply to floating-point parameters only.
/// Errors  `config` if nothing can be trained, a layer lies inside a layer, another trainer holds the model already, a
///         trainer has ended without making the model whole, two parameters of which one trains share memory, or
///         `formats` ask for a type and a parameter that trains has 16 bits already.
class FlatModel {
 public:
  /// The unit of parameters that belong to no layer; layers count from 1 in order of registration.
  static constexpr int kRoot = 0;

  explicit FlatModel(torch::nn::Module& model, const GroupOf& group_of = {}, const NumberFormats& formats = {});

  torch::nn::Module& module() const noexcept { return *module_; }
  /// The trainable parameters, in about the order in which their gradients arrive.
  const std::vector<NamedParameter>& trainable() const noexcept { return trainable_; }
  const std::vector<NamedParameter>& frozen() const noexcept { return frozen_; }
  /// The layers of the model: layers()[u - 1] is unit u.
  const std::vector<const Layer*>& layers() const noexcept { return layers_; }
  const NumberFormats& formats() const noexcept { return formats_; }
  at::Device device() const { return trainable_.front().tensor.device(); }
  std::vector<at::Tensor> buffers() const { return module_->buffers(); }

 private:
  /// Unit number of every parameter.
  std::map<const void*, int> find_units(const torch::nn::Module& model);

  /// Errors  `config` if two parameters share memory and one of them trains. Frozen ones that do stay equal.
  void check_memory() const;

  /// Gives the root the parameters that a module outside of every layer registers, also if a layer shares them.
  static std::map<const void*, int> own_by_root(const torch::nn::Module& model, std::map<const void*, int> unit_of);

  torch::nn::Module* module_;
  NumberFormats formats_;
  std::vector<const Layer*> layers_;
  std::vector<NamedParameter> trainable_;
  std::vector<NamedParameter> frozen_;
};

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/flat/flat_model_inl.hpp>
#endif
