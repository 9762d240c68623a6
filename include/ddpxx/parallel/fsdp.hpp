// ddpxx/parallel/fsdp.hpp — fully sharded data parallel: every rank holds a shard of everything.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/text.hpp>
#include <ddpxx/flat/buffer_pool.hpp>
#include <ddpxx/flat/gradients.hpp>
#include <ddpxx/flat/tensors_in.hpp>
#include <ddpxx/parallel/buffers.hpp>
#include <ddpxx/parallel/call_order.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/parallel/fsdp_config.hpp>
#include <ddpxx/parallel/fsdp_unit.hpp>
#include <ddpxx/parallel/gradient_shards.hpp>
#include <ddpxx/parallel/same_model.hpp>

namespace ddpxx {

/// Parameters, gradients and optimizer state are sharded. A layer's parameters are gathered just before it runs and
/// freed after, and again in backward; its gradients are reduce-scattered as soon as they are complete. The next layer
/// is gathered ahead, in the order that the step before has shown. What belongs to no layer is one more unit, kept from
/// forward to the end of backward. A model with an ordinary forward is whole for that time.
/// A parameter that gets no gradient counts as one with zeros. A weight used outside of its layer's call is an error.
/// Errors  `peer` naming the first parameter that differs between ranks.
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

  void attach(FlatModel& model) {
    check_same_model(model, *shards_);
    if (replicas_ != nullptr) check_same_model(model, *replicas_);
    make_small_group();
    const auto send = [this](at::Tensor values) {
      broadcast(values, *shards_);
      if (replicas_ != nullptr) broadcast(values, *replicas_);
    };
    const bool offload = config_.offload == Offload::cpu;
    ArenaOptions options{.gradients = Gradients::piece,
                         .masters = Masters::apart,
                         .pieces = shards_->size(),
                         .piece = shards_->rank(),
                         .cut = CutAt::units,
                         .offload = offload,
                         .prepare = send};
    for (std::size_t unit = 0; unit <= model.layers().size(); ++unit) units_.emplace_back(*shards_, pool_);
    trainable_ = Arena{model.trainable(), options};
    options.gradients = Gradients::none;
    frozen_ = Arena{model.frozen(), options};
    for (std::size_t i = 0; i < trainable_.segments().size(); ++i)
      units_[static_cast<std::size_t>(trainable_.segments()[i].unit)].add(trainable_, i, Gradients::piece);
    for (std::size_t i = 0; i < frozen_.segments().size(); ++i)
      units_[static_cast<std::size_t>(frozen_.segments()[i].unit)].add(frozen_, i, Gradients::none);
    for (std::size_t unit = 0; unit < units_.size(); ++unit) {
      units_[unit].on_gradients([this, unit](const auto& gradients) { receive(unit, gradients); });
      if (unit != kRoot) unit_of_[model.layers()[unit - 1]] = unit;
      if (unit != kRoot && small_group_) units_[unit].reshard_to(&*small_group_);
    }
    gradients_.emplace(trainable_, *shards_, replicas_, pool_, model.formats().reduction);
    held_.resize(trainable_.segments().size());
    buffers_ =
        SharedBuffers{model.buffers(), *shards_,
                      config_.broadcast_buffers ? BroadcastBuffers::each_step : BroadcastBuffers::once, replicas_};
    strays_ = GradientHooks{trainable_, [this](std::size_t i, const at::Tensor&) {
                              throw Error{Errc::config, "parameter \"" + trainable_[i].name +
                                                            "\" was used outside of its layer's call: FSDP cannot "
                                                            "shard it there; use it inside the layer's forward"};
                            }};
  }

  std::span<const Slice> slices() const { return trainable_.slices(); }
  const Arena& trainable() const { return trainable_; }
  const Arena& frozen() const { return frozen_; }

  template <class Next, class... Args>
  auto around(Layers layers, Next&& next, Args&&... args) {
    std::vector<std::size_t> units;
    for (const auto* layer : layers)
      if (const auto found = unit_of_.find(layer); found != unit_of_.end()) units.push_back(found->second);
    const bool with_gradient = at::GradMode::is_enabled();
    std::vector<std::size_t> gathered_here;
    for (const auto unit : units) {
      if (!units_[unit].whole()) gathered_here.push_back(unit);
      gather(unit);
    }
    for (const auto unit : units) {
      enter(unit);
      if (with_gradient) units_[unit].arm();
    }
    if (with_gradient) release_frozen_after_backward(units, args...);
    auto result = next(std::forward<Args>(args)...);
    static_assert(
        shows_its_tensors<decltype(result)>,
        "a layer under FSDP yields tensors, or tuples, pairs, arrays, vectors and optionals of them: in a type "
        "of its own backward could not see when the layer is needed again");
    if (with_gradient)
      each_tensor(result, [&](at::Tensor& tensor) {
        if (tensor.requires_grad()) tensor.register_hook([this, units](const at::Tensor&) { before_backward(units); });
      });
    if (!with_gradient)
      for (const auto unit : gathered_here) units_[unit].release();
    else if (config_.ranks_after_forward() != 1)
      for (const auto unit : gathered_here) units_[unit].release_after_forward();
    return result;
  }
  auto runner() { return LayerRunner{*this}; }

  template <class Model, class Batch, class Compute>
  at::Tensor forward(Model& model, const Batch& batch, Compute&& compute) {
    auto run = runner();
    const bool with_gradient = at::GradMode::is_enabled();
    std::vector<std::size_t> gathered_here;
    const auto hold = [&](std::size_t unit) {
      if (!units_[unit].whole()) gathered_here.push_back(unit);
      gather(unit);
      if (with_gradient) units_[unit].arm();
    };
    if (scopes_ == 0) order_.begin_forward();
    hold(kRoot);
    if constexpr (!requires { model.forward(run, batch); })
      for (std::size_t unit = 1; unit < units_.size(); ++unit) hold(unit);
    auto loss = compute(model, run, batch);
    if (!with_gradient) {
      for (const auto unit : gathered_here) units_[unit].release();
      settle();  // what was gathered ahead for a layer that did not come
    }
    return loss;
  }

  /// After a pass that an exception ended, the step begins as if nothing had been.
  void begin_backward(Sync sync) {
    if (std::exchange(in_backward_, true)) abandon();
    trainable_.check_owned();
    frozen_.check_owned();
    sync_ = sync;
    buffers_.begin_backward(sync);
  }
  void finish_backward() {
    reduce_held();
    gradients_->finish();
    if (sync_ == Sync::now) gradients_->end_step();
    let_go();
    in_backward_ = false;
  }
  void finish_step() {}
  /// Frees what was gathered ahead and not used.
  void settle() {
    for (auto& unit : units_)
      if (unit.pending()) unit.release();
  }

  at::Tensor sum_over_shards(at::Tensor value) const {
    auto sum = value.to(shards_->device());
    all_reduce(sum, *shards_);
    return sum.to(value.device());
  }

  /// Ranks   Collective, among those that share a copy.
  void assemble(at::Tensor whole, const at::Tensor& piece) const {
    const auto device = whole.to(shards_->device());
    all_gather(device, piece.to(device.options()), *shards_);
    if (!device.is_same(whole)) whole.copy_(device);
  }

  /// Everything whole, for generation and export; what it has gathered is released with the scope.
  /// Ranks   Collective.
  auto gathered() { return Gathered{*this}; }

  /// A number that ranks share exactly if they called the same layers in the same order, since the last time.
  std::uint32_t take_call_hash() { return order_.take_hash(); }

 private:
  static constexpr auto kRoot = static_cast<std::size_t>(FlatModel::kRoot);

  class Gathered {
   public:
    explicit Gathered(FSDP& fsdp) : fsdp_{&fsdp} {
      ++fsdp.scopes_;
      for (std::size_t unit = 0; unit < fsdp.units_.size(); ++unit) {
        if (fsdp.units_[unit].whole()) continue;
        fsdp.units_[unit].gather();
        here_.push_back(unit);
      }
    }
    Gathered(const Gathered&) = delete;
    Gathered& operator=(const Gathered&) = delete;
    ~Gathered() {
      --fsdp_->scopes_;
      for (const auto unit : here_) fsdp_->units_[unit].release();
      fsdp_->pool_.shrink();  // a step never needs as much at once
    }

   private:
    FSDP* fsdp_;
    std::vector<std::size_t> here_;
  };

  void make_small_group() {
    const auto ranks = config_.ranks_after_forward();
    if (!ranks)
      throw Error{Errc::config, "reshard_after_forward: \"" + config_.reshard_after_forward +
                                    "\" is none of true, false, a number of ranks"};
    if (*ranks <= 1 || *ranks >= shards_->size()) return;
    if (shards_->size() % *ranks != 0)
      throw Error{Errc::config, "reshard_after_forward=" + std::to_string(*ranks) + " does not divide the " +
                                    std::to_string(shards_->size()) + " ranks that share a model: choose a divisor"};
    small_group_.emplace(shards_->part(shards_->rank() / *ranks, shards_->rank() % *ranks, *ranks));
  }

  void gather(std::size_t unit) {
    if (config_.check_calls && !units_[unit].whole()) check_call("gather", unit);
    units_[unit].gather();
  }

  /// Notes a call, and gathers ahead what comes next. Inside a `gathered` scope ranks may call what they like: nothing
  /// is sent, and nothing learnt.
  void enter(std::size_t unit) {
    if (scopes_ == 0) gather_ahead(order_.enter(unit));
  }
  /// Backward comes to the outputs of a call: its parameters are needed again, and soon those of the call before.
  void before_backward(const std::vector<std::size_t>& units) {
    for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
      gather(*unit);
      gather_ahead(order_.enter_backward(*unit));
    }
  }
  void gather_ahead(std::optional<std::size_t> unit) {
    if (unit && !config_.check_calls) units_[*unit].start_gather();
  }

  /// A unit without trainable parameters gets no gradients, by whose coming others are released: its inputs' do.
  template <class... Args>
  void release_frozen_after_backward(const std::vector<std::size_t>& units, Args&... args) {
    if (std::any_of(units.begin(), units.end(), [this](std::size_t unit) { return units_[unit].trainable(); })) return;
    const auto watch = [&](const at::Tensor& tensor) {
      if (tensor.requires_grad())
        tensor.register_hook([this, units](const at::Tensor&) {
          for (const auto unit : units) units_[unit].release();
        });
    };
    (each_tensor(args, watch), ...);
  }

  // --- gradients ---

  void receive(std::size_t unit, const std::vector<at::Tensor>& gradients) {
    const c10::NoGradGuard no_grad;
    const bool send = sync_ == Sync::now || config_.reduce_each_backward;
    // Freed first: what follows needs memory of its own.
    if (unit != kRoot) units_[unit].release();
    if (send) gradients_->make_room();
    std::size_t k = 0;
    for (std::size_t i = 0; i < trainable_.segments().size(); ++i) {
      const auto& segment = trainable_.segments()[i];
      if (static_cast<std::size_t>(segment.unit) != unit) continue;
      if (!held_[i].defined()) held_[i] = gradients_->borrow(i, send ? Borrow::to_send : Borrow::to_sum);
      for (auto e = segment.first; e < segment.last; ++e) gradients_->add(held_[i], trainable_[e], gradients[k++]);
    }
    if (!send) return;
    if (config_.check_calls) check_call("reduction", unit);
    for (std::size_t i = 0; i < trainable_.segments().size(); ++i)
      if (static_cast<std::size_t>(trainable_.segments()[i].unit) == unit)
        gradients_->reduce(i, std::exchange(held_[i], {}));
  }
  /// What batches without communication have left of units that the last one did not use.
  void reduce_held() {
    if (sync_ != Sync::now && !config_.reduce_each_backward) return;
    for (std::size_t i = 0; i < held_.size(); ++i)
      if (held_[i].defined()) gradients_->reduce(i, std::exchange(held_[i], {}));
  }

  void let_go() {
    for (auto& unit : units_) {
      unit.release();
      unit.disarm();
    }
  }
  void abandon() {
    gradients_->abandon();
    for (auto& memory : held_)
      if (memory.defined()) pool_.take_back(std::exchange(memory, {}));
    let_go();
  }

  void check_call(const char* what, std::size_t unit) const {
    const auto mine = std::string{what} + (unit == kRoot ? " of the root" : " of layer " + std::to_string(unit));
    const auto all = all_gather_text(mine, *shards_);
    for (std::size_t rank = 1; rank < all.size(); ++rank)
      if (all[rank] != all[0])
        throw Error{Errc::peer, "the ranks run different layers: rank 0 is at the " + all[0] + ", rank " +
                                    std::to_string(rank) + " at the " + all[rank] +
                                    "; a model must call the same layers in the same order on every rank"};
  }

  Config config_;
  Group* shards_;
  const Group* replicas_;
  std::optional<Group> small_group_;
  BufferPool pool_;
  Arena trainable_;
  Arena frozen_;
  SharedBuffers buffers_;
  std::vector<FSDPUnit> units_;
  std::map<const Layer*, std::size_t> unit_of_;
  std::optional<GradientShards> gradients_;
  std::vector<at::Tensor> held_;  ///< Per segment: whole gradients not yet sent.
  GradientHooks strays_;
  CallOrder order_;
  int scopes_ = 0;  ///< `gathered` scopes that are open.
  bool in_backward_ = false;
  Sync sync_ = Sync::now;
};

static_assert(ParallelStrategy<FSDP> && explain_strategy<FSDP>());

}  // namespace ddpxx
