// ddpxx/parallel/data_parallel.hpp — one process, several devices: a replica on each, a part of every batch.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/GradMode.h>
#include <c10/util/irange.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/gradients.hpp>
#include <ddpxx/parallel/concept.hpp>
#include <ddpxx/parallel/data_parallel_config.hpp>
#include <ddpxx/parallel/whole_model.hpp>

namespace ddpxx {

/// A batch that can be cut: `split(parts)` returns at most `parts` batches whose samples, in order, are its own.
template <class B>
concept SplitsIntoParts = requires(const B& batch, std::int64_t parts) {
  { batch.split(parts) } -> std::same_as<std::vector<B>>;
};

/// One process drives several devices: the model is copied to each, every batch is cut into one part for each device,
/// threads run the parts forward at the same time, and the gradients are added up on the first device. On a CPU the
/// copies run one after the other: all draw random numbers from the one generator of the CPU, and dropout repeats only
/// in a fixed order. DDP is faster, since it does not copy all parameters every step and no thread waits for another,
/// and it can use several machines; DataParallel is for programs that must stay one process.
/// Errors  `config` in a group of more than one rank, for a model that cannot be cloned, and for more replicas than
///         kMaxReplicas or than there are GPUs.
class DataParallel : public WholeModel {
 public:
  using Config = DataParallelConfig;

  DataParallel(const Config& config, Group& group) : config_{config} {
    check(config);
    if (group.size() > 1)
      throw Error{Errc::config, "strategy dp runs one process on all devices, but this group has " +
                                    std::to_string(group.size()) + "; choose ddp, or start one process"};
  }
  /// See ChecksConfig.
  static void check(const Config& config) {
    if (config.replicas < 0 || config.replicas > Config::kMaxReplicas)
      throw Error{Errc::config, "strategy dp: replicas=" + std::to_string(config.replicas) + " is not between 0 and " +
                                    std::to_string(Config::kMaxReplicas)};
  }

  void attach(FlatModel& model) {
    for (const auto device : other_devices(model.device())) {
      replicas_.push_back(std::make_unique<Replica>());
      replicas_.back()->model = clone(model.module(), device);
    }
    trainable_ = Arena{model.trainable()};
    frozen_ = Arena{model.frozen(), {.gradients = Gradients::none}};
    buffers_ = model.buffers();
    sum_.emplace(trainable_);
    hooks_ = GradientHooks{trainable_, [this](std::size_t i, const at::Tensor& gradient) { add(i, gradient); }};
    for (auto& replica : replicas_) fill(*replica, model);
  }

  /// Returns the sum of the replicas' losses. Without gradients, and for a batch of one sample, only the first device
  /// works.
  template <class Model, class Batch, class Compute>
  at::Tensor forward(Model& model, const Batch& batch, Compute&& compute) {
    static_assert(SplitsIntoParts<Batch>,
                  "DataParallel cuts batches: add `std::vector<Batch> split(std::int64_t parts) const` to the batch");
    auto run = runner();
    auto parts = at::GradMode::is_enabled() ? batch.split(std::ssize(replicas_) + 1) : std::vector<Batch>{batch};
    if (parts.size() == 1) return compute(model, run, batch);

    std::vector<at::Tensor> losses(parts.size());
    const auto compute_part = [&](std::size_t i) {
      if (i == 0) {
        losses[0] = compute(model, run, parts[0]);
        return;
      }
      auto& replica = *replicas_[i - 1];
      auto& copy = dynamic_cast<Model&>(*replica.model);
      copy.train(model.is_training());
      auto own_run = runner();
      losses[i] = compute(copy, own_run, parts[i].to(replica.trainable.options().device()));
    };
    if (trainable_.options().device().is_cpu())
      for (std::size_t i = 0; i < parts.size(); ++i) compute_part(i);
    else
      run_at_once(parts.size(), compute_part);
    auto loss = losses[0];
    for (std::size_t i = 1; i < losses.size(); ++i) loss = loss + losses[i].to(loss.device());
    return loss;
  }

  void begin_backward(Sync sync) {
    if (std::exchange(in_backward_, true)) sum_->drop();  // an exception has ended the last pass
    trainable_.check_owned();
    sync_ = sync;
    sum_->hide();
  }
  void finish_backward() {
    if (sync_ == Sync::now) sum_->publish();
    in_backward_ = false;
  }
  /// Copies the new parameters to the replicas, and the frozen parameters and buffers, which a snapshot may have
  /// changed.
  void finish_step() {
    trainable_.publish_masters();
    const c10::NoGradGuard no_grad;
    const auto copy = [](const Arena& from, Arena& into) {
      for (std::size_t i = 0; i < from.segments().size(); ++i)
        into.segments()[i].values.copy_(from.segments()[i].values, /*non_blocking=*/true);
    };
    for (const auto& replica : replicas_) {
      copy(trainable_, replica->trainable);
      copy(frozen_, replica->frozen);
      for (auto into = replica->model->buffers(); const auto i : c10::irange(buffers_.size()))
        into[i].copy_(buffers_[i], /*non_blocking=*/true);
    }
  }

  /// See CopiesLayers.
  std::vector<std::vector<const Layer*>> layers_of_replicas() const {
    std::vector<std::vector<const Layer*>> all;
    for (const auto& replica : replicas_) {
      auto& layers = all.emplace_back();
      for (const auto& child : replica->model->modules(/*include_self=*/false))
        if (const auto* layer = dynamic_cast<const Layer*>(child.get())) layers.push_back(layer);
    }
    return all;
  }
  std::size_t num_replicas() const noexcept { return replicas_.size() + 1; }

 private:
  struct Replica {
    std::shared_ptr<torch::nn::Module> model;
    Arena trainable;
    Arena frozen;
    GradientHooks hooks;
  };

  /// Calls `body(i)` for every i below `count`, all at the same time: 0 on this thread, the others on new threads.
  template <class Body>
  static void run_at_once(std::size_t count, const Body& body) {
    std::vector<std::exception_ptr> failures(count);
    const auto run = [&](std::size_t i) {
      try {
        body(i);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    };
    const at::ThreadLocalState state;
    const int num_threads = at::get_num_threads();
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < count; ++i)
      threads.emplace_back([&, i] {
        const at::ThreadLocalStateGuard same_state{state};
        at::set_num_threads(1);
        run(i);
      });
    run(0);
    for (auto& thread : threads) thread.join();
    if (count > 1) at::set_num_threads(num_threads);  // a thread's number is also the default of later threads
    for (const auto& failure : failures)
      if (failure) std::rethrow_exception(failure);
  }

  std::vector<at::Device> other_devices(at::Device first) const {
    const std::int64_t gpus = first.is_cuda() ? at::detail::getCUDAHooks().deviceCount() : 0;
    if (first.is_cuda() && config_.replicas > gpus)
      throw Error{Errc::config, "strategy dp: replicas=" + std::to_string(config_.replicas) + ", but there are " +
                                    std::to_string(gpus) + " GPUs"};
    std::vector<at::Device> devices;
    const auto count = first.is_cuda() && config_.replicas == 0 ? gpus : config_.replicas;
    for (int i = 0; std::ssize(devices) + 1 < count; ++i)
      if (!first.is_cuda() || i != first.index())
        devices.push_back(first.is_cuda() ? at::Device{at::kCUDA, static_cast<c10::DeviceIndex>(i)} : first);
    return devices;
  }

  static std::shared_ptr<torch::nn::Module> clone(const torch::nn::Module& model, at::Device device) {
    try {
      return model.clone(device);
    } catch (const c10::Error&) {
      throw Error{Errc::config,
                  "DataParallel copies the model: derive it, and every module in it, from "
                  "torch::nn::Cloneable, or choose another strategy"};
    }
  }

  /// Puts the parameters of a copy into arenas of the same layout, and adds their gradients to those of the first
  /// device.
  void fill(Replica& replica, const FlatModel& model) {
    const auto named = replica.model->named_parameters();
    const auto arena = [&](std::vector<NamedParameter> parameters) {
      for (auto& parameter : parameters) parameter.tensor = named[parameter.name];
      return Arena{parameters, {.gradients = Gradients::none}};
    };
    replica.trainable = arena(model.trainable());
    replica.frozen = arena(model.frozen());
    replica.hooks = GradientHooks{replica.trainable, [this](std::size_t i, const at::Tensor& gradient) {
                                    add(i, gradient.defined() ? gradient.to(trainable_.options().device()) : gradient);
                                  }};
  }

  /// Adds a gradient to the sum; called by the threads that run backward on the devices.
  void add(std::size_t i, const at::Tensor& gradient) {
    const std::lock_guard lock{mutex_};
    const c10::NoGradGuard no_grad;
    sum_->add(i, gradient);
  }

  Config config_;
  std::vector<at::Tensor> buffers_;
  std::mutex mutex_;
  std::optional<GradientSum> sum_;
  GradientHooks hooks_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  Sync sync_ = Sync::now;
  bool in_backward_ = false;
};

static_assert(ParallelStrategy<DataParallel> && explain_strategy<DataParallel>());

}  // namespace ddpxx
