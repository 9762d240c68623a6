// ddpxx/parallel/hooks/batched_power_sgd_inl.hpp — definitions of batched_power_sgd.hpp; ddpxx/core/inline.hpp says how
// they are compiled.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/core/describe.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/parallel/comm_hook.hpp>
#include <ddpxx/parallel/hooks/batched_power_sgd.hpp>
#include <ddpxx/parallel/hooks/orthogonalize.hpp>

namespace ddpxx {

DDPXX_INLINE void BatchedPowerSGD::attach(const Arena& arena, std::span<const BucketRange> buckets) {
  buckets_.clear();
  for (const auto& [first, last] : buckets) {
    auto& bucket = buckets_.emplace_back();
    for (auto i = first; i < last; ++i) {
      bucket.parts.push_back({arena[i].offset - arena[first].offset, arena[i].numel, bucket.numel});
      bucket.numel += arena[i].numel;
    }
    bucket.side =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(bucket.numel)))));
    bucket.rank = std::min(bucket.side, config_.matrix_rank);
  }
}

DDPXX_INLINE void BatchedPowerSGD::set_q(std::size_t bucket, const at::Tensor& q) {
  auto& chosen = buckets_.at(bucket);
  if (q.dim() != 2 || q.size(0) != chosen.side || q.size(1) != chosen.rank)
    throw Error{Errc::config, "BatchedPowerSGD: the Q of bucket " + std::to_string(bucket) + " has " +
                                  std::to_string(chosen.side) + " rows and " + std::to_string(chosen.rank) +
                                  " columns"};
  chosen.first_q = q;
}

DDPXX_INLINE Pending BatchedPowerSGD::start(std::size_t i, at::Tensor memory, const Group& group) {
  if (i == 0) compressing_ = steps_++ >= config_.start_step;
  if (!compressing_) return start_all_reduce(memory, group);
  auto& bucket = buckets_[i];
  if (!bucket.square.defined()) allocate(bucket, memory.options());
  const auto flat = bucket.square.view(-1);
  for (const auto& part : bucket.parts)
    flat.narrow(0, part.packed, part.numel).copy_(memory.narrow(0, part.offset, part.numel));
  flat.narrow(0, bucket.numel, flat.numel() - bucket.numel).zero_();
  if (config_.error_feedback) add_error(bucket);
  prepare_q(bucket);
  at::mm_out(bucket.p, bucket.square, bucket.q);
  return start_all_reduce(bucket.p, group);
}

DDPXX_INLINE void BatchedPowerSGD::finish(std::size_t i, at::Tensor memory, const Group& group) {
  if (!compressing_) return;
  auto& bucket = buckets_[i];
  detail::orthogonalize(bucket.p);
  at::mm_out(bucket.q, bucket.square.t(), bucket.p);
  all_reduce(bucket.q, group);
  // Set here and not in start(), so that a step which is abandoned between the two leaves no error.
  if (config_.error_feedback) {
    if (!bucket.error.defined()) bucket.error = at::empty_like(bucket.square);
    bucket.error.copy_(bucket.square);
  }
  at::mm_out(bucket.square, bucket.p, bucket.q.t());
  // Divided by W, so that the sum of all ranks' errors is the error of the sum of their gradients.
  if (config_.error_feedback) bucket.error.sub_(bucket.square, 1.0 / group.size());
  const auto flat = bucket.square.view(-1);
  for (const auto& part : bucket.parts)
    memory.narrow(0, part.offset, part.numel).copy_(flat.narrow(0, part.packed, part.numel));
}

DDPXX_INLINE void BatchedPowerSGD::resume_at(std::int64_t step) {
  steps_ = step;
  generator_.set_current_seed(static_cast<std::uint64_t>(config_.seed));
  for (auto& bucket : buckets_) {
    bucket.has_q = false;
    bucket.error.reset();
  }
}

DDPXX_INLINE void BatchedPowerSGD::allocate(Bucket& bucket, const at::TensorOptions& options) {
  bucket.square = at::empty({bucket.side, bucket.side}, options);
  bucket.p = at::empty({bucket.side, bucket.rank}, options);
  bucket.q = at::empty({bucket.side, bucket.rank}, options);
}

DDPXX_INLINE void BatchedPowerSGD::add_error(Bucket& bucket) {
  if (bucket.error.defined()) bucket.square.add_(bucket.error.nan_to_num_(0, 0, 0));
}

DDPXX_INLINE void BatchedPowerSGD::prepare_q(Bucket& bucket) {
  if (bucket.first_q.defined())
    bucket.q.copy_(std::exchange(bucket.first_q, {}));
  else if (bucket.has_q && config_.warm_start)
    detail::revive(bucket.q);
  else
    bucket.q.copy_(at::randn({bucket.side, bucket.rank}, generator_, at::TensorOptions{at::kFloat}));
  bucket.has_q = true;
  detail::orthogonalize(bucket.q);
}

}  // namespace ddpxx
