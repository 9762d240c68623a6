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
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/GradMode.h>
#include <c10/util/irange.h>

#include <ddpxx/core/error.hpp>
#include <ddpxx/flat/gradient_hooks.hpp>
#include <ddpxx/flat/gradient_sum.hpp>
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
/// in a fixed order. Each GPU draws from its own generator, and a snapshot holds only that of the first one: after a
/// resume, dropout on the other GPUs differs from that of a run without a stop. DDP is faster, since it does not copy
/// all parameters every step and no thread waits for another, and it can use several machines; DataParallel is for
/// programs that must stay one process.
/// Errors  `config` in a group of more than one rank, for a model that cannot be cloned or whose modules share a
///         parameter, and for more replicas than kMaxReplicas or than there are GPUs.
class DataParallel : public WholeModel {
 public:
  using Config = DataParallelConfig;

  DataParallel(const Config& config, Group& group);
  /// See ChecksConfig.
  static void check(const Config& config);

  void attach(FlatModel& model);

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
      copy_modes(model, copy);
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

  /// Where the program has changed parameters or buffers in place since the last step, copies them to the replicas.
  void begin_backward(Sync sync);
  void finish_backward();
  /// Copies the new parameters to the replicas, and the frozen parameters and buffers, which a snapshot may have
  /// changed.
  void finish_step();

  /// See CopiesLayers.
  std::vector<std::vector<const Layer*>> layers_of_replicas() const;

 private:
  /// Puts each module of `to` into the mode of the same module of `from`: a frozen part may be in evaluation mode.
  static void copy_modes(const torch::nn::Module& from, torch::nn::Module& to);

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
    std::vector<std::jthread> threads;  // they are joined even where the system gives no further thread
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

  /// Gives the replicas the parameters and buffers of the model.
  void copy_to_replicas();
  /// How often the model's parameters and buffers were changed in place, by the program or by the model's forward.
  std::int64_t num_changes() const;

  std::vector<at::Device> other_devices(at::Device first) const;

  static std::shared_ptr<torch::nn::Module> clone(const torch::nn::Module& model, at::Device device);

  /// Puts the parameters of a copy into arenas of the same layout, and adds their gradients to those of the first
  /// device.
  void fill(Replica& replica, const FlatModel& model);

  /// Adds a gradient to the sum; called by the threads that run backward on the devices.
  void add(std::size_t i, const at::Tensor& gradient);

  Config config_;
  std::vector<at::Tensor> buffers_;
  std::mutex mutex_;
  std::optional<GradientSum> sum_;
  GradientHooks hooks_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  Sync sync_ = Sync::now;
  bool in_backward_ = false;
  std::int64_t copied_changes_ = 0;  ///< num_changes() when the replicas got the values that they have.
};

static_assert(ParallelStrategy<DataParallel> && explain_strategy<DataParallel>());

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/parallel/data_parallel_inl.hpp>
#endif
