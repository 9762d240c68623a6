// plan_time.cpp — `mingpt plan --time`, for every strategy and precision.
#include "plan_time.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include <ATen/Parallel.h>

#include <ddpxx/comm/device.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/nn/make_model.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/train/micro_batches.hpp>
#include <ddpxx/train/record_steps.hpp>
#include <ddpxx/train/time_plan.hpp>

#include "plan_config.hpp"
#include "planned_run.hpp"
#include "run_config.hpp"

namespace {

/// 1, 2, 4 ... ranks of which the strategy and a global batch allow each, up to those of the plan.
std::vector<std::int64_t> world_sizes(const RunConfig& config, std::int64_t most) {
  const auto* hsdp = std::get_if<kHSDP>(&config.strategy);
  std::vector<std::int64_t> sizes;
  for (auto size = hsdp == nullptr ? std::int64_t{1} : hsdp->shard_size; size < most; size *= 2)
    if (config.training.global_batch_size % size == 0) sizes.push_back(size);
  sizes.push_back(most);
  return sizes;
}

template <class Strategy>
ddpxx::StepTime time_of(const RunConfig& config, const typename Strategy::Config& strategy, std::int64_t world_size,
                        const ddpxx::PlannedMachine& machine, const TextSizes& text) {
  const auto micro_batches = ddpxx::micro_batches(config.data.batch_size, config.training, world_size);
  const std::vector<ddpxx::Batch> batches(static_cast<std::size_t>(micro_batches.count),
                                          text.batch(micro_batches.size));
  auto model =
      ddpxx::make_model<ddpxx::GPT>(config.training.seed, at::kCPU, config.model, text.vocab_size, text.block_size);
  const auto steps = ddpxx::record_steps<ddpxx::GPT, ddpxx::AdamW, NamedPrecision, Strategy, ddpxx::Batch>(
      static_cast<int>(world_size), std::move(model),
      {.grad_norm_clip = config.training.grad_norm_clip,
       .grad_value_clip = config.training.grad_value_clip,
       .fused_clip = config.training.fused_clip,
       .ema_decay = config.training.ema_decay,
       .optimizer = config.optimizer,
       .precision = {config.precision},
       .strategy = strategy,
       .parameter_groups = config.parameter_groups},
      batches);
  return ddpxx::replay(steps, machine);
}

}  // namespace

void plan_time(const PlanConfig& planned, const TextSizes& text) {
  const auto& config = planned.run;
  if (ddpxx::pick_device(config.training.device, {}) != at::kCPU)
    throw ddpxx::Error{ddpxx::Errc::config, "plan --time measures steps on a CPU: set training.device=cpu"};
  if (planned.link.bandwidth == 0 && planned.world_size > 1)
    throw ddpxx::Error{ddpxx::Errc::config,
                       "link.bandwidth: plan --time needs the speed of the links between the ranks: set it and "
                       "link.latency to what `ddpxx net` prints between two of them, such as link.bandwidth=10GB "
                       "link.latency=0.02ms"};
  const ddpxx::PlannedMachine machine{planned.link, planned.ranks_per_core, planned.overlaps};
  const int threads = at::get_num_threads();
  std::printf("simulated: one rank's steps on this machine, %d %s, and collectives over the given links\n", threads,
              threads == 1 ? "thread" : "threads");
  std::printf("%6s %13s %13s %13s %12s\n", "ranks", "step", "computing", "waiting", "efficiency");
  for (const auto size : world_sizes(config, planned.world_size)) {
    const auto time = with_strategy(config, [&]<class Strategy>(const typename Strategy::Config& strategy) {
      return time_of<Strategy>(config, strategy, size, machine, text);
    });
    std::printf("%6lld %10.3f ms %10.3f ms %10.3f ms %10.1f %%\n", static_cast<long long>(size), 1e3 * time.step,
                1e3 * time.computing, 1e3 * (time.step - time.computing), 100 * time.computing / time.step);
  }
}
