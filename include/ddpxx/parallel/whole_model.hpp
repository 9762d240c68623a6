// ddpxx/parallel/whole_model.hpp — what strategies have in common whose ranks each hold all parameters.
#pragma once

#include <span>
#include <utility>
#include <variant>

#include <ATen/core/Tensor.h>

#include <ddpxx/flat/arena.hpp>
#include <ddpxx/layers/layer.hpp>

namespace ddpxx {

/// Base of strategies whose ranks each hold, and step, all parameters. It has the functions of ParallelStrategy that
/// need nothing but the memory of this rank; the derived strategy adds a constructor, `Config`, `attach`, which fills
/// `trainable_` and `frozen_`, `begin_backward` and `finish_backward`. A function that is declared again in the derived
/// strategy replaces the one here.
class WholeModel : public PlainCall {
 public:
  WholeModel(const WholeModel&) = delete;
  WholeModel& operator=(const WholeModel&) = delete;

  std::span<const Slice> slices() const { return trainable_.slices(); }
  const Arena& trainable() const { return trainable_; }
  const Arena& frozen() const { return frozen_; }

  auto runner() { return LayerRunner{*this}; }
  template <class Model, class Batch, class Compute>
  at::Tensor forward(Model& model, const Batch& batch, Compute&& compute) {
    auto run = runner();
    return std::forward<Compute>(compute)(model, run, batch);
  }

  /// Rounds the stepped values to the types that the model computes with.
  void finish_step() {
    trainable_.publish_masters();
    trainable_.forget_changes();
  }
  void wait_pending() {}
  at::Tensor sum_over_shards(at::Tensor value) const { return value; }
  auto gathered() { return std::monostate{}; }
  void make_whole() {}

 protected:
  WholeModel() = default;
  ~WholeModel() = default;

  /// Errors  `config` if a parameter has left the arenas, or was unfrozen since they took it.
  void check_owned() const {
    trainable_.check_owned();
    frozen_.check_owned();
  }

  Arena trainable_;
  Arena frozen_;
};

}  // namespace ddpxx
