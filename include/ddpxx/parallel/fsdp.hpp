// ddpxx/parallel/fsdp.hpp — fully sharded data parallel: every rank holds a shard of everything.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>
#include <c10/util/intrusive_ptr.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/flat/buffer_pool.hpp>
#include <ddpxx/flat/gradient_hooks.hpp>
#include <ddpxx/flat/hollow.hpp>
#include <ddpxx/layers/changes_in_place.hpp>
#include <ddpxx/layers/tensors_in.hpp>
#include <ddpxx/parallel/buffers.hpp>
#include <ddpxx/parallel/call_order.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/parallel/copy_stream.hpp>
#include <ddpxx/parallel/fsdp_config.hpp>
#include <ddpxx/parallel/fsdp_unit.hpp>
#include <ddpxx/parallel/gradient_shards.hpp>
#include <ddpxx/parallel/layer_units.hpp>
#include <ddpxx/parallel/same_model.hpp>
#include <ddpxx/parallel/stepped_segments.hpp>

namespace ddpxx {

/// Parameters, gradients and optimizer state are sharded. A layer's parameters are gathered just before it runs and
/// freed after it, and again in backward; its gradients are reduce-scattered as soon as they are complete. The next
/// layer is gathered ahead, in the order of calls of the last step. Small layers that follow each other are one unit,
/// which is gathered by one collective. Parameters that belong to no layer are another unit, which stays whole from
/// forward to the end of backward; a model whose forward takes no runner is whole for that time. A parameter that gets
/// no gradient counts as one with zeros. A parameter used outside of its layer's call is an error.
/// Errors  `peer` naming the first parameter that differs between ranks, and, with check_calls, if the ranks call other
///         layers or use others in their loss; `config` for a wrong reshard_after_forward, for a parameter used outside
///         of its layer's call, for one with a hook from register_hook(), and for one that was frozen or unfrozen after
///         attach().
/// Source  Zhao et al. 2023, arXiv:2304.11277; equal to DDP bit for bit at two ranks, without clipping.
class FSDP {
 public:
  using Config = FSDPConfig;

  FSDP(const Config& config, Group& group) : FSDP{config, group, nullptr} {}
  /// Shards over `shards`; `replicas`, if given, are the ranks that hold the same shard as this one.
  FSDP(const Config& config, Group& shards, const Group* replicas)
      : config_{config}, shards_{&shards}, replicas_{replicas} {}
  FSDP(const FSDP&) = delete;
  FSDP& operator=(const FSDP&) = delete;
  /// Communicates nothing. Parameters that are sharded lose their values, and their next use is an error; where one
  /// rank holds the only shard they are made whole.
  ~FSDP();

  /// See OffersStepInBackward.
  void step_in_backward(StepSegment step) { step_ = std::move(step); }
  void attach(FlatModel& model);

  std::span<const Slice> slices() const { return trainable_.slices(); }
  const Arena& trainable() const { return trainable_; }
  const Arena& frozen() const { return frozen_; }

  template <class Next, class... Args>
  auto around(Layers layers, Next&& next, Args&&... args) {
    const auto calls = layer_units_.calls_of(layers);
    const bool with_gradient = at::GradMode::is_enabled();
    if (with_gradient) made_whole_ = false;
    std::map<std::size_t, bool> needed_again;  // for each unit, by the last of its layers here
    for (const auto& [unit, layer] : calls) {
      if (config_.check_calls && !all_whole()) check_call("call of layer " + std::to_string(layer));
      gather(unit);
      needed_again[unit] = enter(unit, layer, with_gradient);
    }
    if (with_gradient) {
      for (const auto& [unit, again] : needed_again) units_[unit].arm();
      reshard_frozen_after_backward(calls, args...);
    }
    std::vector<Argument> given;
    if (with_gradient) (each_tensor(args, [&](const at::Tensor& tensor) { given.emplace_back(tensor); }), ...);
    auto result = next(std::forward<Args>(args)...);
    static_assert(
        shows_its_tensors<decltype(result)>,
        "a layer under FSDP returns tensors, or tuples, pairs, arrays, vectors and optionals of them: FSDP cannot "
        "find the tensors in other types, and would not gather the layer for backward");
    if (with_gradient)
      each_tensor(result, [&](at::Tensor& tensor) {
        // An argument that is returned as it was is not a result of this layer: a hook on it would gather the layer
        // when the argument's gradient is complete, which may be after the layer's own backward.
        if (tensor.requires_grad() && !is_parameter(tensor) &&
            std::ranges::none_of(given, [&](const Argument& argument) { return argument.is(tensor); }))
          tensor.register_hook([self = std::weak_ptr{self_}, calls](const at::Tensor&) {
            if (const auto fsdp = self.lock()) fsdp->before_backward(calls);
          });
      });
    for (const auto& [unit, again] : needed_again)
      if (!again) reshard_after_call(unit, with_gradient);
    return result;
  }
  auto runner() { return LayerRunner{*this}; }

  template <class Model, class Batch, class Compute>
  at::Tensor forward(Model& model, const Batch& batch, Compute&& compute) {
    auto run = runner();
    const bool with_gradient = at::GradMode::is_enabled();
    const auto hold = [&](std::size_t unit) {
      gather(unit);
      if (with_gradient) units_[unit].arm();
    };
    std::vector<bool> was_whole;
    for (const auto& unit : units_) was_whole.push_back(unit.whole());
    if (with_gradient) made_whole_ = false;
    if (!all_whole()) {
      order_.begin_forward();
      gather_ahead(kRoot);
      gather_ahead(order_.first());
    }
    hold(kRoot);
    if constexpr (!RunsLayers<Model, decltype(run), Batch>)
      for (std::size_t unit = 1; unit < units_.size(); ++unit) hold(unit);
    auto loss = compute(model, run, batch);
    if (!with_gradient)  // also units that were gathered ahead for a layer that was not called
      for (std::size_t unit = 0; unit < units_.size(); ++unit)
        if (!was_whole[unit]) units_[unit].reshard();
    return loss;
  }

  /// Where an exception has ended the last backward pass, its gradients are dropped.
  void begin_backward(Sync sync);
  void finish_backward();
  /// Frees all parameters: the optimizer has stepped the shards, and the gathered values are those before the step.
  void finish_step();
  /// Waits for the units that were gathered ahead and not used, and frees them.
  void wait_pending();

  at::Tensor sum_over_shards(at::Tensor value) const;

  /// A scope in which all parameters are whole, for generation and export. Its end frees what it has gathered.
  /// Ranks   Collective.
  auto gathered() { return Gathered{*this}; }

  /// Makes all parameters whole until the next step or call with gradients, unless whole_at_end is false. Until then a
  /// rank may run layers on its own.
  /// Ranks   Collective.
  void make_whole();
  /// See SharesBuffers.
  void share_buffers() { buffers_.share(); }

  /// How many layers of `bytes` bytes each one unit has.
  static std::int64_t layers_of_unit(const Config& config, std::int64_t bytes);

  /// A number that is equal on two ranks if since the last call they have called the same layers in the same order, and
  /// sent the gradients of the same ones.
  std::uint32_t take_call_hash() { return order_.take_hash(); }

 private:
  using Call = LayerUnits::Call;
  static constexpr auto kRoot = static_cast<std::size_t>(FlatModel::kRoot);

  class Gathered {
   public:
    explicit Gathered(FSDP& fsdp) : fsdp_{&fsdp} {
      try {
        for (std::size_t unit = 0; unit < fsdp.units_.size(); ++unit) {
          if (fsdp.units_[unit].whole()) continue;
          here_.push_back(unit);
          fsdp.units_[unit].gather();
        }
      } catch (...) {  // such as for want of memory: the training may go on
        for (const auto unit : here_) fsdp.units_[unit].reshard();
        throw;
      }
      ++fsdp.gathered_scopes_;
    }
    Gathered(const Gathered&) = delete;
    Gathered& operator=(const Gathered&) = delete;
    ~Gathered() {
      --fsdp_->gathered_scopes_;
      for (const auto unit : here_) fsdp_->units_[unit].reshard();
      fsdp_->pool_.shrink();  // a step needs less memory at a time
    }

   private:
    FSDP* fsdp_;
    std::vector<std::size_t> here_;
  };

  /// Fills a segment's values from this rank's piece, where that is the only one.
  void restore(const Arena& arena, const Segment& segment);

  void make_small_group();

  /// An argument with the changes in place that it had before the call. The weak pointer keeps its address from being
  /// that of a result.
  struct Argument {
    explicit Argument(const at::Tensor& given)
        : tensor{given.getIntrusivePtr()}, version{detail::changes_in_place(given)} {}
    bool is(const at::Tensor& result) const {
      return tensor._unsafe_get_target() == result.unsafeGetTensorImpl() && version == detail::changes_in_place(result);
    }
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor;
    std::int64_t version;
  };

  void gather(std::size_t unit);

  /// Whether all parameters stay whole after a call.
  bool all_whole() const { return gathered_scopes_ > 0 || made_whole_; }

  /// Records a call and gathers the next unit ahead; returns whether the unit is needed again right after the call.
  /// While all parameters are whole, ranks may call different layers: nothing is sent, and no call is recorded.
  bool enter(std::size_t unit, std::size_t layer, bool with_gradient);
  void reshard_after_call(std::size_t unit, bool with_gradient);
  /// Called when backward comes to the outputs of a call: gathers its parameters, and starts to gather those of the
  /// call before it.
  void before_backward(const std::vector<Call>& calls);
  void gather_ahead(std::optional<std::size_t> unit);

  /// A unit with trainable parameters is freed when their gradients are complete. One without any is freed when the
  /// gradients of the inputs of all its calls are, or at the end of backward. A leaf among the inputs, such as a
  /// parameter, gets no hook, which would stay there after the step.
  template <class... Args>
  void reshard_frozen_after_backward(const std::vector<Call>& calls, Args&... args) {
    if (std::any_of(calls.begin(), calls.end(), [this](const Call& call) { return units_[call.unit].trainable(); }))
      return;
    const auto inputs = std::make_shared<int>(0);  // whose gradients are not complete
    const auto watch = [&](const at::Tensor& tensor) {
      if (!tensor.requires_grad() || tensor.is_leaf() || is_parameter(tensor)) return;
      ++*inputs;
      tensor.register_hook([self = std::weak_ptr{self_}, calls, inputs](const at::Tensor&) {
        if (const auto fsdp = self.lock(); fsdp && --*inputs == 0) fsdp->end_frozen(calls);
      });
    };
    (each_tensor(args, watch), ...);
    if (*inputs > 0)
      for (const auto& call : calls) units_[call.unit].begin_call();
  }
  void end_frozen(const std::vector<Call>& calls);
  /// Frees a unit whose backward is over, unless it was whole before, for a scope of `gathered`.
  void reshard_after_backward(std::size_t unit) {
    if (gathered_scopes_ == 0) units_[unit].reshard();
  }

  bool is_parameter(const at::Tensor& tensor) const {
    return std::ranges::any_of(trainable_.entries(),
                               [&](const auto& entry) { return entry.parameter.is_same(tensor); });
  }

  // --- gradients ---

  AfterReduce after_reduce() const { return stepped_ && sync_ == Sync::now ? AfterReduce::step : AfterReduce::keep; }
  /// Whether the gradients of this backward pass are reduced. If not, they stay whole until the next one.
  bool sends() const { return sync_ == Sync::now || config_.reduce_each_backward; }

  void receive(std::size_t unit, const std::vector<at::Tensor>& gradients);
  void reduce(std::size_t segment);
  /// Reduces the gradients of earlier backward passes in units that the last one did not use.
  void reduce_rest();

  void reshard_all();
  void abandon();

  void check_call(const std::string& mine) const;

  Config config_;
  Group* shards_;
  const Group* replicas_;
  std::optional<Group> small_group_;
  BufferPool pool_;
  CopyStream to_device_;  ///< Copies pieces from pinned memory before they are gathered.
  Arena trainable_;
  Arena frozen_;
  SharedBuffers buffers_;
  LayerUnits layer_units_;
  std::vector<FSDPUnit> units_;
  StepSegment step_;
  std::optional<SteppedSegments> stepped_;
  std::optional<GradientShards> gradients_;
  std::vector<at::Tensor> unreduced_;  ///< For each segment: whole gradients that are not reduced yet.
  GradientHooks misuse_hooks_;
  CallOrder order_;
  /// Owns nothing. Hooks hold a weak_ptr to this object, because a graph may outlive it.
  std::shared_ptr<FSDP> self_{this, [](FSDP*) {}};
  int gathered_scopes_ = 0;  ///< Number of `gathered` scopes that are open.
  bool made_whole_ = false;  ///< No step and no call with gradients has begun since make_whole().
  bool in_backward_ = false;
  Sync sync_ = Sync::now;
};

static_assert(ParallelStrategy<FSDP> && explain_strategy<FSDP>());

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/parallel/fsdp_inl.hpp>
#endif
