// ddpxx/parallel/hooks/power_sgd_inl.hpp — definitions of power_sgd.hpp; ddpxx/core/inline.hpp says how they are
// compiled.
#pragma once

#include <algorithm>
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
#include <ddpxx/parallel/hooks/orthogonalize.hpp>
#include <ddpxx/parallel/hooks/power_sgd.hpp>

namespace ddpxx {

DDPXX_INLINE void PowerSGD::attach(const Arena& arena, std::span<const BucketRange> buckets) {
  buckets_.clear();
  for (const auto& [first, last] : buckets) {
    auto& bucket = buckets_.emplace_back();
    for (auto i = first; i < last; ++i) add(bucket, arena[i], arena[first].offset, i);
  }
}

DDPXX_INLINE void PowerSGD::set_q(std::size_t parameter, const at::Tensor& q) {
  for (auto& bucket : buckets_)
    for (auto& matrix : bucket.matrices)
      if (matrix.parameter == parameter && q.dim() == 2 && q.size(0) == matrix.columns && q.size(1) == matrix.rank) {
        matrix.first_q = q;
        return;
      }
  throw Error{Errc::config,
              "PowerSGD: no compressed parameter " + std::to_string(parameter) + " has a Q of this shape"};
}

DDPXX_INLINE bool PowerSGD::compresses(std::size_t parameter) const {
  return std::ranges::any_of(buckets_, [&](const Bucket& bucket) {
    return std::ranges::any_of(bucket.matrices, [&](const Matrix& m) { return m.parameter == parameter; });
  });
}

DDPXX_INLINE Pending PowerSGD::start(std::size_t i, at::Tensor memory, const Group& group) {
  if (i == 0) compressing_ = steps_++ >= config_.start_step;
  auto& bucket = buckets_[i];
  if (!compressing_ || bucket.matrices.empty()) return start_all_reduce(memory, group);
  if (!bucket.sent.defined()) allocate(bucket, memory.options());
  for (const auto& part : bucket.whole)
    bucket.sent.narrow(0, part.sent, part.numel).copy_(memory.narrow(0, part.offset, part.numel));
  for (auto& matrix : bucket.matrices) {
    const auto gradient = matrix.in(memory);
    if (config_.error_feedback) add_error(matrix, gradient);
    prepare_q(matrix);
    at::mm_out(matrix.p, gradient, matrix.q);
  }
  return start_all_reduce(bucket.sent, group);
}

DDPXX_INLINE void PowerSGD::finish(std::size_t i, at::Tensor memory, const Group& group) {
  auto& bucket = buckets_[i];
  if (!compressing_ || bucket.matrices.empty()) return;
  for (const auto& part : bucket.whole)
    memory.narrow(0, part.offset, part.numel).copy_(bucket.sent.narrow(0, part.sent, part.numel));
  for (auto& matrix : bucket.matrices) {
    detail::orthogonalize(matrix.p, config_.orthogonalization_epsilon);
    at::mm_out(matrix.q, matrix.in(memory).t(), matrix.p);
  }
  all_reduce(bucket.qs, group);
  for (auto& matrix : bucket.matrices) {
    auto gradient = matrix.in(memory);
    // Set here and not in start(), so that a step which is abandoned between the two leaves no error.
    if (config_.error_feedback) {
      if (!matrix.error.defined()) matrix.error = at::empty_like(gradient);
      matrix.error.copy_(gradient);
    }
    at::mm_out(gradient, matrix.p, matrix.q.t());
    // Divided by W, so that the sum of all ranks' errors is the error of the sum of their gradients.
    if (config_.error_feedback) matrix.error.sub_(gradient, 1.0 / group.size());
  }
}

DDPXX_INLINE void PowerSGD::resume_at(std::int64_t step) {
  steps_ = step;
  generator_.set_current_seed(static_cast<std::uint64_t>(config_.seed));
  for (auto& bucket : buckets_)
    for (auto& matrix : bucket.matrices) {
      matrix.has_q = false;
      matrix.error.reset();
    }
}

DDPXX_INLINE void PowerSGD::add(Bucket& bucket, const ArenaEntry& entry, std::int64_t begin, std::size_t i) const {
  const auto rows = entry.parameter.dim() == 0 ? 1 : std::max<std::int64_t>(entry.parameter.size(0), 1);
  const auto columns = entry.numel / rows;
  const auto rank = std::min({rows, columns, config_.matrix_rank});
  if (static_cast<double>((rows + columns) * rank) * config_.min_compression_rate < static_cast<double>(entry.numel)) {
    bucket.matrices.push_back({i, entry.offset - begin, rows, columns, rank});
  } else {
    bucket.whole.push_back({entry.offset - begin, entry.numel, bucket.whole_numel});
    bucket.whole_numel += entry.numel;
  }
}

DDPXX_INLINE void PowerSGD::allocate(Bucket& bucket, const at::TensorOptions& options) {
  std::int64_t sent = bucket.whole_numel, qs = 0;
  for (const auto& matrix : bucket.matrices) {
    sent += matrix.rows * matrix.rank;
    qs += matrix.columns * matrix.rank;
  }
  bucket.sent = at::empty({sent}, options);
  bucket.qs = at::empty({qs}, options);
  sent = bucket.whole_numel;
  qs = 0;
  for (auto& matrix : bucket.matrices) {
    matrix.p = bucket.sent.narrow(0, sent, matrix.rows * matrix.rank).view({matrix.rows, matrix.rank});
    matrix.q = bucket.qs.narrow(0, qs, matrix.columns * matrix.rank).view({matrix.columns, matrix.rank});
    sent += matrix.p.numel();
    qs += matrix.q.numel();
  }
}

DDPXX_INLINE void PowerSGD::add_error(const Matrix& matrix, at::Tensor gradient) {
  if (matrix.error.defined()) gradient.add_(at::Tensor{matrix.error}.nan_to_num_(0, 0, 0));
}

DDPXX_INLINE void PowerSGD::prepare_q(Matrix& matrix) {
  if (matrix.first_q.defined())
    matrix.q.copy_(std::exchange(matrix.first_q, {}));
  else if (matrix.has_q && config_.warm_start)
    detail::revive(matrix.q);
  else
    matrix.q.copy_(at::randn({matrix.columns, matrix.rank}, generator_, at::TensorOptions{at::kFloat}));
  matrix.has_q = true;
  detail::orthogonalize(matrix.q, config_.orthogonalization_epsilon);
}

}  // namespace ddpxx
