// ddpxx/observe/step_numbers.hpp — the numbers of a step under their names in the files of metrics.
#pragma once

#include <ddpxx/observe/events.hpp>
#include <ddpxx/observe/rank_time.hpp>

namespace ddpxx::detail {

/// Calls `add(name, number)` for each number that the step has, in the order of the metrics file.
template <class Add>
void for_each_number(const StepDone& event, Add&& add) {
  add("step", event.step);
  add("epoch", event.epoch);
  add("loss", event.loss);
  add("grad_norm", event.grad_norm);
  add("lr", event.learning_rate);
  add("tokens_per_second", event.tokens_per_second);
  add("step_ms", event.step_ms);
  add("data_ms", event.data_ms);
  add("peak_memory_bytes", event.peak_memory_bytes);
  add("state_bytes", event.state_bytes);
  add("samples", event.samples);
  add("tokens", event.tokens);
  add("time", event.at.time);
  add("elapsed", event.at.elapsed);
  if (event.loss_scale) add("loss_scale", *event.loss_scale);
  if (event.skipped_steps) add("skipped_steps", *event.skipped_steps);
  if (event.gpu) {
    add("gpu_allocated_bytes", event.gpu->allocated_bytes);
    add("gpu_reserved_bytes", event.gpu->reserved_bytes);
    add("gpu_peak_bytes", event.gpu->peak_bytes);
    add("gpu_retries", event.gpu->retries);
  }
  if (!event.rank_times.empty()) {
    const auto spread = spread_of(event.rank_times);
    add("slowest_rank", spread.slowest_rank);
    add("slowest_rank_ms", spread.slowest_ms);
    add("median_rank_ms", spread.median_ms);
  }
  for (const auto& metric : event.metrics) add(metric.name, metric.value);
}

}  // namespace ddpxx::detail
